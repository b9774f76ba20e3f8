// The commands of a box and what they write, live. All of it only looks: the box may freeze under it (rule 4.14).

import { useEffect, useRef, useState } from 'preact/hooks';
import { boxPath, get, send } from '../api';
import { isUp } from '../explain';
import { span } from '../time';
import type { Box, Proc } from '../types';
import { useWatched } from '../watch';
import { words, type Words } from '../words';

const LOOK_MS = 1_500;
/** The most that is kept of what a command wrote, in characters. */
const KEPT = 64 * 1024;
const ENDED_SHOWN = 20;

export function Commands({ box }: { box: Box }) {
	const w = words.value;
	const up = isUp(box);
	const look = async (signal: AbortSignal) => {
		if (!up) return { procs: [] as Proc[], asleep: true };
		return get<{ procs: Proc[]; asleep?: boolean }>(boxPath(box.id, '/procs?look=1'), signal);
	};
	const seen = useWatched(look, up ? LOOK_MS : 60_000, [box.id, box.status]);
	const procs = seen.value?.procs ?? [];
	const running = procs.filter((proc) => proc.running);
	const ended = procs.filter((proc) => !proc.running).slice(0, ENDED_SHOWN);
	const asleep = !up || seen.value?.asleep;
	return (
		<section class="card" aria-labelledby="commands">
			<h2 id="commands">{w.commands}</h2>
			{asleep && <p class="muted">{w.commandsAsleep}</p>}
			{!asleep && running.length === 0 && <p class="muted">{w.noCommands}</p>}
			{running.map((proc) => (
				<Command key={proc.execId} box={box} proc={proc} open />
			))}
			{ended.length > 0 && (
				<details class="ended">
					<summary>{w.ended(ended.length)}</summary>
					{ended.map((proc) => (
						<Command key={proc.execId} box={box} proc={proc} open={false} />
					))}
				</details>
			)}
		</section>
	);
}

function outcome(proc: Proc, w: Words): string {
	if (proc.running) return w.running;
	if (proc.timedOut) return w.timedOut;
	if (proc.signal) return w.killed(proc.signal);
	return w.exited(proc.exitCode ?? 0);
}

function Command({ box, proc, open }: { box: Box; proc: Proc; open: boolean }) {
	const w = words.value;
	const [shown, setShown] = useState(open);
	const good = proc.running || proc.exitCode === 0;
	return (
		<details class="command" open={open} onToggle={(event) => setShown(event.currentTarget.open)}>
			<summary>
				<code title={proc.cmd}>{proc.cmd}</code>
				<span class={good ? 'result' : 'result failed'}>
					{outcome(proc, w)} · {span(proc.ms / 1000, w)}
				</span>
			</summary>
			{shown && <Output box={box} proc={proc} stream="stdout" bytes={proc.stdoutBytes} />}
			{shown && proc.stderrBytes > 0 && <Output box={box} proc={proc} stream="stderr" bytes={proc.stderrBytes} />}
			{shown && proc.stdoutBytes + proc.stderrBytes === 0 && <p class="muted">{w.noOutput}</p>}
		</details>
	);
}

interface Text {
	/** The byte behind the last one that is there; reading goes on here. */
	offset: number;
	text: string;
	cut: boolean;
}

/** One stream of a command: read on from where it was, whenever there is more. */
function Output(props: { box: Box; proc: Proc; stream: 'stdout' | 'stderr'; bytes: number }) {
	const w = words.value;
	const { box, proc, stream, bytes } = props;
	const [seen, setSeen] = useState<Text>({ offset: Math.max(0, bytes - KEPT), text: '', cut: bytes > KEPT });
	const pane = useRef<HTMLPreElement>(null);
	const atEnd = useRef(true);
	const decoder = useRef(new TextDecoder());
	const more = seen.offset < bytes;
	useEffect(() => {
		if (!more) return;
		const ending = new AbortController();
		const read = async () => {
			const path = boxPath(box.id, `/procs/${proc.execId}/output?look=1&stream=${stream}&offset=${seen.offset}`);
			const answer = await send('GET', path, { signal: ending.signal });
			const from = Number(answer.headers.get('x-icebox-offset') ?? seen.offset);
			const piece = new Uint8Array(await answer.arrayBuffer());
			const text = seen.text + decoder.current.decode(piece, { stream: true });
			setSeen({
				offset: from + piece.length,
				text: text.slice(-KEPT),
				cut: seen.cut || from > seen.offset || text.length > KEPT,
			});
		};
		// A box that froze meanwhile is shown as such by the rest of the page; reading goes on when it does.
		read().catch(() => {});
		return () => ending.abort();
	}, [bytes, seen.offset]);
	useEffect(() => {
		const element = pane.current;
		if (element && atEnd.current) element.scrollTop = element.scrollHeight;
	}, [seen.text]);
	if (seen.text === '') return null;
	const name = stream === 'stderr' ? w.errors : proc.running ? w.followOutput : w.output;
	return (
		<>
			{seen.cut && <p class="hint">{w.outputCut}</p>}
			<pre
				ref={pane}
				class={`output ${stream}`}
				tabIndex={0}
				role="log"
				aria-label={`${name}: ${proc.cmd}`}
				aria-live="off"
				onScroll={(event) => {
					const { scrollTop, clientHeight, scrollHeight } = event.currentTarget;
					atEnd.current = scrollTop + clientHeight >= scrollHeight - 8;
				}}
			>
				{plain(seen.text)}
			</pre>
		</>
	);
}

/** What a terminal would do with it: colours are left out, and a line that is written over shows its last form. */
function plain(text: string): string {
	const bare = text.replace(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(\u0007|\u001b\\)/g, '');
	return bare
		.replace(/\r+\n/g, '\n')
		.split('\n')
		.map((line) => line.slice(line.lastIndexOf('\r', line.length - 2) + 1))
		.join('\n');
}

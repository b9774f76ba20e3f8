// What a person can do with a box. Each asks the server and shows what became of it; the box's change comes by the stream.

import { useState } from 'preact/hooks';
import { boxPath, call, get } from '../api';
import { nameOf } from '../explain';
import { paths } from '../route';
import { took } from '../store';
import { span } from '../time';
import type { Box, Proc } from '../types';
import { Button, copy, Dialog, Link, say, sentence, type IconName } from '../ui';
import { words } from '../words';

/** Does something with a box; says how it went. `did` answers whether it went well. */
async function attempt(act: () => Promise<Box>, done: string): Promise<boolean> {
	try {
		took(await act());
		say(done);
		return true;
	} catch (error) {
		say(sentence(error), true);
		return false;
	}
}

type Kind = 'main' | 'plain' | 'quiet';

/** A button that asks for one thing and shows that it is under way. */
function Act(props: { icon: IconName; kind?: Kind; text: string; busy: string; done: string; act: () => Promise<Box> }) {
	const [busy, setBusy] = useState(false);
	const click = async () => {
		setBusy(true);
		await attempt(props.act, props.done);
		setBusy(false);
	};
	return (
		<Button icon={props.icon} kind={props.kind ?? 'plain'} busy={busy && props.busy} onClick={() => void click()}>
			{props.text}
		</Button>
	);
}

export function Wake({ box, kind = 'main' }: { box: Box; kind?: Kind }) {
	const { actions, busy, done } = words.value;
	const act = () => call<Box>('POST', boxPath(box.id, '/wake'));
	return <Act icon="wake" kind={kind} text={actions.wake} busy={busy.wake} done={done.wake} act={act} />;
}

export function Freeze({ box }: { box: Box }) {
	const { actions, busy, done } = words.value;
	const act = () => call<Box>('POST', boxPath(box.id, '/freeze'));
	return <Act icon="freeze" text={actions.freeze} busy={busy.freeze} done={done.freeze} act={act} />;
}

export function Restore({ box, kind = 'plain' }: { box: Box; kind?: Kind }) {
	const { actions, busy, done } = words.value;
	const act = () => call<Box>('POST', '/v1/boxes', { restore: box.id });
	return <Act icon="restore" kind={kind} text={actions.restore} busy={busy.restore} done={done.restore} act={act} />;
}

export function Keep({ box }: { box: Box }) {
	const { actions, busy, done } = words.value;
	const kept = box.keep === true;
	const act = () => call<Box>('PATCH', boxPath(box.id), { keep: !kept });
	const text = kept ? actions.unkeep : actions.keep;
	return <Act icon="keep" text={text} busy={busy.save} done={kept ? done.letGo : done.kept} act={act} />;
}

/** Puts a box away for good, after saying what that loses and asking once. */
export function ShutDown({ box }: { box: Box }) {
	const w = words.value;
	const [running, setRunning] = useState<Proc[] | null>(null);
	const [busy, setBusy] = useState(false);
	const ask = async () => {
		const path = boxPath(box.id, '/procs?look=1');
		const seen = await get<{ procs: Proc[] }>(path).catch(() => ({ procs: [] }));
		setRunning(seen.procs.filter((proc) => proc.running));
	};
	const stop = async () => {
		setBusy(true);
		await attempt(() => call<Box>('POST', boxPath(box.id, '/stop')), w.done.shutDown);
		setBusy(false);
		setRunning(null);
	};
	return (
		<>
			<Button icon="stop" kind="plain" onClick={() => void ask()}>
				{w.actions.shutDown}
			</Button>
			{running && (
				<Dialog title={w.shutDownTitle(nameOf(box))} close={() => setRunning(null)}>
					<p>{w.shutDownLoses}</p>
					{running.length > 0 && (
						<>
							<p>{w.shutDownRuns(running.length)}</p>
							<ul class="commands-lost">
								{running.slice(0, 5).map((proc) => (
									<li key={proc.execId}>
										<code>{proc.cmd}</code>
									</li>
								))}
							</ul>
						</>
					)}
					{box.services.length > 0 && <p>{w.shutDownUrls}</p>}
					<p>
						<Link to={paths.files(box.id)}>{w.shutDownFetch}</Link>
					</p>
					<div class="dialog-acts">
						<Button kind="plain" onClick={() => setRunning(null)}>
							{w.cancel}
						</Button>
						<Button kind="danger" icon="stop" busy={busy && w.busy.shutDown} onClick={() => void stop()}>
							{w.actions.shutDown}
						</Button>
					</div>
				</Dialog>
			)}
		</>
	);
}

/** Copies what to tell an agent so that it goes on with a box. */
export function Continue({ box, kind = 'main' }: { box: Box; kind?: Kind }) {
	const w = words.value;
	const [prompt, setPrompt] = useState<string | null>(null);
	const ask = async () => {
		const whole = await get<Box>(boxPath(box.id, '?fields=steps')).catch(() => null);
		const notes = (whole?.steps ?? []).map((step) => step.note).filter((note) => note !== undefined);
		const text = w.prompt(box.id, box.name, box.goal, notes.slice(-5));
		setPrompt(text);
		await copy(text);
	};
	return (
		<>
			<Button icon="continue" kind={kind} onClick={() => void ask()}>
				{w.actions.continue}
			</Button>
			{prompt !== null && (
				<Dialog title={w.continueTitle} close={() => setPrompt(null)}>
					<p>{w.continueHelp}</p>
					<pre class="prompt" tabIndex={0}>
						{prompt}
					</pre>
					<div class="dialog-acts">
						<Button kind="plain" onClick={() => setPrompt(null)}>
							{w.close}
						</Button>
						<Button kind="main" icon="copy" onClick={() => void copy(prompt)}>
							{w.copy}
						</Button>
					</div>
				</Dialog>
			)}
		</>
	);
}

/** Changes the name and the goal. */
export function Rename({ box }: { box: Box }) {
	const w = words.value;
	const [open, setOpen] = useState(false);
	return (
		<>
			<Button icon="edit" kind="quiet" onClick={() => setOpen(true)}>
				{w.actions.rename}
			</Button>
			{open && <RenameForm box={box} close={() => setOpen(false)} />}
		</>
	);
}

function RenameForm({ box, close }: { box: Box; close: () => void }) {
	const w = words.value;
	const [name, setName] = useState(box.name ?? '');
	const [goal, setGoal] = useState(box.goal ?? '');
	const [busy, setBusy] = useState(false);
	const save = async (event: Event) => {
		event.preventDefault();
		setBusy(true);
		const change = { name: name.trim() || null, goal: goal.trim() || null };
		if (await attempt(() => call<Box>('PATCH', boxPath(box.id), change), w.done.saved)) close();
		else setBusy(false);
	};
	return (
		<Dialog title={w.renameTitle} close={close}>
			<form onSubmit={(event) => void save(event)}>
				<label for="box-name">{w.name}</label>
				<input
					id="box-name"
					value={name}
					maxLength={60}
					aria-describedby="box-name-hint"
					onInput={(event) => setName(event.currentTarget.value)}
				/>
				<p class="hint" id="box-name-hint">
					{w.nameLimit}
				</p>
				<label for="box-goal">{w.goal}</label>
				<textarea
					id="box-goal"
					rows={4}
					value={goal}
					maxLength={500}
					aria-describedby="box-goal-hint"
					onInput={(event) => setGoal(event.currentTarget.value)}
				/>
				<p class="hint" id="box-goal-hint">
					{w.goalLimit}
				</p>
				<div class="dialog-acts">
					<Button onClick={close}>{w.cancel}</Button>
					<Button kind="main" type="submit" busy={busy && w.busy.save}>
						{w.save}
					</Button>
				</div>
			</form>
		</Dialog>
	);
}

const LIMITS_MIN = [30, 120, 480, 1440, 4320, 10080];

/** Sets a limit of the box's own, or takes it away. */
export function Limit({ box }: { box: Box }) {
	const w = words.value;
	const [open, setOpen] = useState(false);
	return (
		<>
			<Button icon="clock" kind="plain" onClick={() => setOpen(true)}>
				{w.actions.limit}
			</Button>
			{open && <LimitForm box={box} close={() => setOpen(false)} />}
		</>
	);
}

function LimitForm({ box, close }: { box: Box; close: () => void }) {
	const w = words.value;
	const [minutes, setMinutes] = useState(box.idleTimeoutMin?.toString() ?? '');
	const [busy, setBusy] = useState(false);
	const number = Number(minutes);
	const fits = minutes.trim() === '' || (Number.isInteger(number) && number >= 1 && number <= 10080);
	const save = async (event: Event) => {
		event.preventDefault();
		if (!fits) return;
		setBusy(true);
		const change = { idleTimeoutMin: minutes.trim() === '' ? null : number };
		if (await attempt(() => call<Box>('PATCH', boxPath(box.id), change), w.done.saved)) close();
		else setBusy(false);
	};
	return (
		<Dialog title={w.limitTitle} close={close}>
			<form onSubmit={(event) => void save(event)}>
				<p>{w.limitHelp}</p>
				<label for="box-limit">{w.limitMinutes}</label>
				<input
					id="box-limit"
					inputMode="numeric"
					value={minutes}
					aria-invalid={!fits}
					aria-describedby="box-limit-hint"
					onInput={(event) => setMinutes(event.currentTarget.value)}
				/>
				<p class={fits ? 'hint' : 'trouble'} id="box-limit-hint">
					{w.limitRange}
				</p>
				<div class="presets">
					{LIMITS_MIN.map((preset) => (
						<button key={preset} type="button" class="chip" onClick={() => setMinutes(String(preset))}>
							{span(preset * 60, w)}
						</button>
					))}
					<button type="button" class="chip" onClick={() => setMinutes('')}>
						{w.noLimit}
					</button>
				</div>
				<div class="dialog-acts">
					<Button onClick={close}>{w.cancel}</Button>
					<Button kind="main" type="submit" disabled={!fits} busy={busy && w.busy.save}>
						{w.save}
					</Button>
				</div>
			</form>
		</Dialog>
	);
}

// The files of a box: look around, fetch, bring. Each of these is a call that acts, so nothing is asked before the person
// wants it: a box that sleeps is not woken by opening this page.

import { useEffect, useRef, useState } from 'preact/hooks';
import { boxPath, get, send } from '../api';
import { isUp } from '../explain';
import { now } from '../store';
import { exact, full } from '../time';
import type { Box } from '../types';
import { Button, Icon, say, sentence } from '../ui';
import { words } from '../words';
import { Wake } from './actions';

interface Entry {
	name: string;
	type: string;
	bytes: number;
	modifiedAt?: string;
	link?: string;
}

const ROOT = '/work';
const query = (path: string) => `path=${encodeURIComponent(path)}`;
const join = (folder: string, name: string) => `${folder.replace(/\/$/, '')}/${name}`;

export function Files({ box }: { box: Box }) {
	const w = words.value;
	const up = isUp(box);
	const [path, setPath] = useState(ROOT);
	const [entries, setEntries] = useState<Entry[] | null>(null);
	const [trouble, setTrouble] = useState('');
	const [busy, setBusy] = useState('');
	const [over, setOver] = useState(false);
	const chosen = useRef<HTMLInputElement>(null);
	const list = async (folder: string) => {
		setTrouble('');
		try {
			const answer = await get<{ entries: Entry[] }>(boxPath(box.id, `/files?${query(folder)}&list=1`));
			setPath(folder);
			setEntries(answer.entries);
		} catch (error) {
			setTrouble(sentence(error));
		}
	};
	useEffect(() => {
		if (up && entries === null) void list(path);
	}, [up]);
	const bring = async (files: Iterable<File>) => {
		for (const file of files) {
			setBusy(w.files.uploading(file.name));
			try {
				await send('PUT', boxPath(box.id, `/files?${query(join(path, file.name))}`), { body: file });
				say(w.files.uploaded(file.name));
			} catch (error) {
				say(sentence(error), true);
			}
		}
		setBusy('');
		await list(path);
	};
	if (!up && entries === null) {
		return (
			<section class="card">
				<p>{w.files.asleep}</p>
				<p class="terminal-state">
					<Wake box={box} />
				</p>
			</section>
		);
	}
	const drop = (event: DragEvent) => {
		event.preventDefault();
		setOver(false);
		if (event.dataTransfer) void bring(event.dataTransfer.files);
	};
	return (
		<section
			class={over ? 'card drop' : 'card'}
			aria-label={w.actions.files}
			onDragOver={(event) => {
				event.preventDefault();
				setOver(true);
			}}
			onDragLeave={() => setOver(false)}
			onDrop={drop}
		>
			<Path path={path} open={(folder) => void list(folder)} />
			<div class="file-tools">
				<Button icon="upload" busy={busy !== '' && busy} onClick={() => chosen.current?.click()}>
					{w.files.upload}
				</Button>
				<input
					ref={chosen}
					type="file"
					multiple
					class="out-of-sight"
					tabIndex={-1}
					aria-label={w.files.upload}
					onChange={(event) => {
						const input = event.currentTarget;
						void bring([...(input.files ?? [])]).then(() => (input.value = ''));
					}}
				/>
				<Download box={box} path={path} text={w.files.downloadFolder} />
			</div>
			{trouble && (
				<p class="trouble" role="alert">
					{trouble}
				</p>
			)}
			{entries?.length === 0 && <p class="muted">{w.files.empty}</p>}
			<ul>
				{entries?.map((entry) => (
					<li key={entry.name} class="entry">
						<span class="name-of">
							{entry.type === 'folder' ? (
								<button type="button" class="folder" onClick={() => void list(join(path, entry.name))}>
									<Icon name="files" /> {entry.name}/
								</button>
							) : (
								<span>{entry.name}</span>
							)}
							{entry.link && <span class="muted">→ {entry.link}</span>}
						</span>
						<span class="size">{entry.type === 'file' && size(entry.bytes, w.locale)}</span>
						<time class="muted" title={entry.modifiedAt && full(entry.modifiedAt, w)}>
							{entry.modifiedAt && exact(entry.modifiedAt, now.value, w)}
						</time>
						{entry.type === 'file' || entry.type === 'folder' ? (
							<Download box={box} path={join(path, entry.name)} name={entry.name} />
						) : (
							<span />
						)}
					</li>
				))}
			</ul>
		</section>
	);
}

/** A link that fetches a file, or a folder as an archive; the browser saves it as it comes. */
function Download(props: { box: Box; path: string; name?: string; text?: string }) {
	const w = words.value;
	const name = props.path.split('/').pop() ?? 'files';
	return (
		<a
			class={props.text ? 'button plain' : 'button quiet'}
			href={boxPath(props.box.id, `/files?${query(props.path)}`)}
			download={props.text ? `${name}.tar.gz` : name}
			aria-label={props.text ? undefined : w.files.downloadOne(props.name ?? name)}
		>
			<Icon name="download" />
			{props.text}
		</a>
	);
}

function Path({ path, open }: { path: string; open: (folder: string) => void }) {
	const parts = path.split('/').filter(Boolean);
	return (
		<nav class="path" aria-label={path}>
			{parts.map((part, index) => (
				<span key={index}>
					{index === 0 && '/'}
					<button type="button" onClick={() => open('/' + parts.slice(0, index + 1).join('/'))}>
						{part}
					</button>
					{index < parts.length - 1 && '/'}
				</span>
			))}
		</nav>
	);
}

function size(bytes: number, locale: string): string {
	const units = ['B', 'KB', 'MB', 'GB', 'TB'];
	const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
	const number = bytes / 1024 ** power;
	return `${number.toLocaleString(locale, { maximumFractionDigits: number < 10 && power > 0 ? 1 : 0 })} ${units[power]}`;
}

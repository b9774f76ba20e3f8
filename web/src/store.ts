// What the page knows of the server, kept true: one stream of events, the head of the list now and then (whatever is used
// comes to its head), and the whole list once a minute. A hidden page lets the stream go, asks rarely, and reads on from
// where it was. Nothing here is use of a box: all of it only looks (rule 4.14).

import { batch, signal } from '@preact/signals';
import { ApiError, boxPath, get, onSignedOut, send } from './api';
import { readEvents } from './stream';
import type { Account, Box, BoxEvent, BoxList, Slots } from './types';

export const session = signal<'unknown' | 'out' | 'in'>('unknown');
export const account = signal<Account | null>(null);
export const boxes = signal<ReadonlyMap<string, Box>>(new Map());
export const loaded = signal(false);
export const slots = signal<Slots | null>(null);
/** The newest events, oldest first. */
export const events = signal<readonly BoxEvent[]>([]);
/** Whether what is shown is what is; false while the server cannot be reached. */
export const live = signal(true);
/** The server's time, moved on a little now and then. */
export const now = signal(Date.now());

const HEAD = 50;
const PAGE = 1000;
const EVENTS_KEPT = 1000;
const HISTORY = 300;
/** Changed boxes that are asked for one by one; more are read as a list. */
const ONE_BY_ONE = 10;
const VISIBLE = { head: 5_000, whole: 60_000, account: 30_000, tick: 5_000 };
const HIDDEN = { head: 60_000, whole: 600_000, account: 300_000, tick: 60_000 };
/** How long a hidden page keeps its stream. */
const LET_GO_MS = 10_000;
/** After this long without a sign of life the stream is dead: the server sends one every 15 s. */
const SILENT_MS = 40_000;

let offsetMs = 0;
/** The server's time as the whole list began to be read. */
let readFrom = 0;
const pace = () => (document.hidden ? HIDDEN : VISIBLE);

/** The server's time at this moment. */
export function serverNow(): number {
	return Date.now() + offsetMs;
}

function tick() {
	now.value = serverNow();
}

/** Whether two answers say the same; the order of their fields says nothing. */
function same(a: unknown, b: unknown): boolean {
	if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return a === b;
	const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
	const keys = Object.keys(left);
	return keys.length === Object.keys(right).length && keys.every((key) => same(left[key], right[key]));
}

/** When what is known of each box was asked for: answers may overtake each other. */
const askedAt = new Map<string, number>();

/** Takes over what the server says of some boxes, as it was asked at a moment. */
function take(views: Box[], asked: number) {
	const next = new Map(boxes.value);
	let changed = false;
	for (const view of views) {
		if ((askedAt.get(view.id) ?? 0) > asked) continue;
		askedAt.set(view.id, asked);
		const old = next.get(view.id);
		if (old && same(old, view)) continue;
		next.set(view.id, view);
		changed = true;
	}
	if (changed) boxes.value = next;
}

/** One box as it is now, for those who just changed it; it may be none of the list's any more. */
export function took(view: Box) {
	const { why: _why, steps: _steps, ...listed } = view;
	take([listed], Date.now());
}

function readHead(list: BoxList, sentAt: number) {
	batch(() => {
		if (list.at) {
			offsetMs = Date.parse(list.at) - (sentAt + Date.now()) / 2;
			tick();
		}
		if (list.slots) slots.value = list.slots;
		live.value = true;
	});
}

async function refreshHead(signal: AbortSignal) {
	const sentAt = Date.now();
	const list = await get<BoxList>(`/v1/boxes?all=1&limit=${HEAD}`, signal);
	readHead(list, sentAt);
	take(list.boxes, sentAt);
}

async function refreshWhole(signal: AbortSignal) {
	const all: Box[] = [];
	const began = Date.now();
	let from = 0;
	let cursor = '';
	do {
		const sentAt = Date.now();
		const query = cursor ? `&cursor=${encodeURIComponent(cursor)}` : '';
		// The first look brings a screenful, the rest follows behind it.
		const limit = loaded.value || cursor ? PAGE : HEAD;
		const list = await get<BoxList>(`/v1/boxes?all=1&limit=${limit}${query}`, signal);
		readHead(list, sentAt);
		from ||= Date.parse(list.at ?? '') || serverNow();
		all.push(...list.boxes);
		if (!loaded.value) {
			readFrom = from;
			batch(() => {
				take(list.boxes, began);
				loaded.value = true;
			});
			early.splice(0).forEach((event) => reread(event, signal));
		}
		cursor = list.nextCursor ?? '';
	} while (cursor);
	readFrom = from;
	const seen = new Set(all.map((view) => view.id));
	batch(() => {
		const gone = [...boxes.value.keys()].filter((id) => !seen.has(id) && (askedAt.get(id) ?? 0) <= began);
		if (gone.length > 0) {
			const next = new Map(boxes.value);
			for (const id of gone) {
				next.delete(id);
				askedAt.delete(id);
			}
			boxes.value = next;
		}
		take(all, began);
	});
}

async function refreshAccount(signal: AbortSignal) {
	account.value = await get<Account>('/v1/account', signal);
}

const dirty = new Set<string>();
let dirtyTimer: ReturnType<typeof setTimeout> | undefined;

/** Reads boxes that changed, shortly, so that a change in several steps is read once. */
function changed(id: string, signal: AbortSignal) {
	dirty.add(id);
	dirtyTimer ??= setTimeout(async () => {
		dirtyTimer = undefined;
		const ids = [...dirty];
		dirty.clear();
		const asked = Date.now();
		try {
			if (ids.length > ONE_BY_ONE) return await refreshWhole(signal);
			const fields = 'fields=' + LISTED;
			const asking = ids.map((id) =>
				get<Box>(`${boxPath(id)}?${fields}`, signal).catch((error) => {
					if (error instanceof ApiError && error.status === 404) return null;
					throw error;
				}),
			);
			take((await Promise.all(asking)).filter((view) => view !== null), asked);
		} catch (error) {
			lost(error);
		}
	}, 120);
}

/** What a list has of a box. */
const LISTED =
	'name,goal,createdAt,lastUsedAt,statusReason,idleTimeoutMin,stopsAt,restorableUntil,keep,waitsForRoom,freeze,tier,keeps,' +
	'snapshotError,egress,agent,services,sceneUrl,webUrl,private,health,image,size,host,metadata,observedAt,stateRecordedAt';

function lost(error: unknown) {
	if (error instanceof ApiError && error.status === 401) return;
	if (error instanceof DOMException && error.name === 'AbortError') return;
	live.value = false;
}

/** Where reading of events goes on. */
let position: number | undefined;

function heard(event: BoxEvent, signal: AbortSignal) {
	position = event.seq;
	const kept = events.value.length >= EVENTS_KEPT ? events.value.slice(-EVENTS_KEPT + 1) : events.value;
	events.value = [...kept, event];
	if (loaded.value) reread(event, signal);
	else early.push(event);
}

/** Events that came before the list. */
const early: BoxEvent[] = [];

function reread(event: BoxEvent, signal: AbortSignal) {
	// What happened before the list was read is in the list.
	if (Date.parse(event.at) >= readFrom) changed(event.box, signal);
}

const eventsPath = () => (position === undefined ? `/v1/events?last=${HISTORY}` : `/v1/events?since=${position}`);

/** Reads events until the stream ends or the page is hidden for a while. */
async function listen(signal: AbortSignal) {
	const ending = new AbortController();
	const end = () => ending.abort();
	let silent = setTimeout(end, SILENT_MS);
	let hidden: ReturnType<typeof setTimeout> | undefined;
	const watch = () => {
		clearTimeout(hidden);
		if (document.hidden) hidden = setTimeout(end, LET_GO_MS);
	};
	watch();
	signal.addEventListener('abort', end);
	document.addEventListener('visibilitychange', watch);
	try {
		const headers = { accept: 'text/event-stream' };
		const answer = await send('GET', eventsPath(), { headers, signal: ending.signal });
		live.value = true;
		if (!answer.body) return;
		let pending: BoxEvent[] = [];
		await readEvents(
			answer.body,
			(sent) => {
				if (sent.id === '') return;
				pending.push(JSON.parse(sent.data) as BoxEvent);
			},
			() => {
				clearTimeout(silent);
				silent = setTimeout(end, SILENT_MS);
				queueMicrotask(() => {
					const some = pending;
					pending = [];
					batch(() => some.forEach((event) => heard(event, signal)));
				});
			},
		);
	} finally {
		clearTimeout(silent);
		clearTimeout(hidden);
		signal.removeEventListener('abort', end);
		document.removeEventListener('visibilitychange', watch);
		ending.abort();
	}
}

/** What a hidden page missed, read at once and without staying. */
async function catchUp(signal: AbortSignal) {
	const answer = await send('GET', eventsPath(), { headers: { accept: 'application/x-ndjson' }, signal });
	const lines = (await answer.text()).split('\n').filter(Boolean);
	batch(() => lines.forEach((line) => heard(JSON.parse(line) as BoxEvent, signal)));
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((done) => {
		const end = () => {
			clearTimeout(timer);
			document.removeEventListener('visibilitychange', woken);
			signal.removeEventListener('abort', end);
			done();
		};
		const woken = () => {
			if (!document.hidden) end();
		};
		const timer = setTimeout(end, ms);
		document.addEventListener('visibilitychange', woken);
		signal.addEventListener('abort', end);
	});
}

/** Does something again and again until the page signs out. */
async function forever(signal: AbortSignal, wait: () => number, act: (signal: AbortSignal) => unknown) {
	while (!signal.aborted) {
		try {
			await act(signal);
		} catch (error) {
			if (error instanceof ApiError && error.code === 'events_gone') position = undefined;
			else if (!signal.aborted) lost(error);
		}
		if (!signal.aborted) await pause(wait(), signal);
	}
}

let running: AbortController | undefined;

/** Forgets everything of whoever was signed in. */
function forget(next: 'in' | 'out') {
	running?.abort();
	running = undefined;
	position = undefined;
	askedAt.clear();
	early.length = 0;
	batch(() => {
		session.value = next;
		account.value = null;
		boxes.value = new Map();
		loaded.value = false;
		slots.value = null;
		events.value = [];
		live.value = true;
	});
}

/** Begins to keep everything true, for whoever is signed in now. */
export function begin() {
	forget('in');
	running = new AbortController();
	const { signal } = running;
	void forever(signal, () => pace().whole, refreshWhole);
	void forever(signal, () => pace().account, refreshAccount);
	void forever(signal, () => pace().tick, tick);
	void pause(VISIBLE.head, signal).then(() => forever(signal, () => pace().head, refreshHead));
	const hear = (signal: AbortSignal) => (document.hidden ? catchUp(signal) : listen(signal));
	void forever(signal, () => (document.hidden ? 20_000 : 1_000), hear);
}

export function end() {
	forget('out');
}

onSignedOut(end);

/** Whether somebody is signed in already. */
export async function look() {
	try {
		await get<Account>('/v1/account');
		begin();
	} catch (error) {
		if (error instanceof ApiError && error.status === 401) return;
		session.value = 'out';
		live.value = false;
	}
}

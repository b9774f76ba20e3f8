// The last note of each box that is on the screen: what its AI said it was doing. Asked for when a row comes into sight and
// when its box was used since, a few at a time.

import { signal, type Signal } from '@preact/signals';
import { boxPath, get } from './api';
import { session } from './store';
import type { Box, Step } from './types';

interface Note {
	usedAt: string;
	note: string | undefined;
}

/** A signal for each box, so that a note that comes draws one row anew and not all. */
const notes = new Map<string, Signal<Note | undefined>>();

export function lastNote(id: string): Signal<Note | undefined> {
	let note = notes.get(id);
	if (!note) notes.set(id, (note = signal(undefined)));
	return note;
}

const AT_A_TIME = 4;
const queue = new Map<string, string>();
let asking = 0;

const rows = new Map<Element, Box>();
const sight = new IntersectionObserver(
	(entries) => {
		for (const entry of entries) {
			const box = rows.get(entry.target);
			if (entry.isIntersecting && box) want(box);
		}
	},
	{ rootMargin: '200px' },
);

/** Asks for the note of a box as long as its row is there; gives what ends that. */
export function wantNote(box: Box, row: Element | null) {
	if (!row) return;
	rows.set(row, box);
	sight.observe(row);
	return () => {
		rows.delete(row);
		sight.unobserve(row);
	};
}

function want(box: Box) {
	if (lastNote(box.id).value?.usedAt === box.lastUsedAt) return;
	queue.set(box.id, box.lastUsedAt);
	void ask();
}

async function ask() {
	if (asking >= AT_A_TIME) return;
	asking++;
	try {
		for (let next = take(); next; next = take()) {
			const [id, usedAt] = next;
			const box = await get<{ steps?: Step[] }>(boxPath(id, '?fields=steps')).catch(() => null);
			if (!box || session.value !== 'in') continue;
			const step = box.steps?.findLast((step) => step.note);
			lastNote(id).value = { usedAt, note: step?.note };
		}
	} finally {
		asking--;
	}
}

function take(): [string, string] | undefined {
	const next = queue.entries().next().value;
	if (next) queue.delete(next[0]);
	return next;
}

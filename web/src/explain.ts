// What a box is doing, and what the rules will do with it, in the words of the page. Knows no rule: the server's forecasts
// say it all. Owns which label a box has, in which section it stands, and what is an estimate.

import { ago, distance, moment, span, within } from './time';
import type { Box, Hold } from './types';
import type { Words } from './words';

/** Minutes before its end in which a box asks for attention (rule 6.4). */
export const SOON_MIN = 30;

export type Label = keyof Words['labels'];

const ENDED = new Set(['terminated', 'interrupted', 'error']);
const UP = new Set(['ready', 'takeover']);

export const isEnded = (box: Box) => ENDED.has(box.status);
export const isUp = (box: Box) => UP.has(box.status);
export const isAsleep = (box: Box) => box.status === 'frozen';
/** Whether it is on its way between two states. */
export const isMoving = (box: Box) => ['claimed', 'starting', 'freezing', 'thawing', 'stopping'].includes(box.status);
export const needsPerson = (box: Box) => box.status === 'takeover';
export const isTesting = (box: Box) =>
	box.screenActive === true && box.agent?.state === 'working' && !needsPerson(box);
/** Whether its AI stopped and it waits for nobody: it can be continued or put away (rule 9.4). */
export const isLeft = (box: Box) => ['left', 'idle'].includes(box.agent?.state ?? '') && !needsPerson(box);

export function nameOf(box: Box): string {
	return box.name ?? box.id.slice(0, 8);
}

/** The label of a box (rule 9.4): what its AI does, not which state it is in. */
export function label(box: Box): Label {
	if (box.waitsForRoom) return 'queue';
	switch (box.status) {
		case 'claimed':
		case 'starting':
			return 'starting';
		case 'takeover':
		case 'stopping':
		case 'terminated':
		case 'interrupted':
		case 'error':
			return box.status;
	}
	const state = box.agent?.state;
	if (state === 'working' || state === 'away' || state === 'left' || state === 'idle') return state;
	return 'unknown';
}

export type Tone = 'good' | 'busy' | 'calm' | 'warn' | 'bad' | 'off';

const TONES: Record<Label, Tone> = {
	working: 'good',
	away: 'calm',
	left: 'warn',
	idle: 'warn',
	starting: 'busy',
	takeover: 'busy',
	stopping: 'busy',
	terminated: 'off',
	interrupted: 'bad',
	error: 'bad',
	queue: 'busy',
	unknown: 'off',
};

export const tone = (box: Box): Tone => TONES[label(box)];

/** Whether something is under way in it (rule 3.7). */
export const isInUse = (box: Box) =>
	box.freeze?.blockedBy.some((hold) => ['foreground', 'takeover', 'link'].includes(hold.kind)) === true;

/** Seconds without use; 0 while it is in use. */
export function unusedSec(box: Box, now: number): number {
	if (isInUse(box)) return 0;
	return Math.max(0, (now - Date.parse(box.lastUsedAt)) / 1000);
}

/** Whether it will be gone soon unless somebody uses it, or brings it back. */
export function isSoonGone(box: Box, now: number): boolean {
	if (isEnded(box)) return within(box.restorableUntil, now, SOON_MIN);
	return within(box.stopsAt, now, SOON_MIN);
}

/** When it is gone unless somebody does something; `undefined` when that is never. */
export function goneAt(box: Box): string | undefined {
	return isEnded(box) ? box.restorableUntil : box.stopsAt;
}

/** A moment that would move with the next use of an awake box is an estimate; a frozen one's is exact. */
const about = (box: Box, text: string) => (isUp(box) ? `~${text}` : text);

/** One short line on what happens to it next, for lists. */
export function outlook(box: Box, now: number, words: Words): string[] {
	const at = (time: string) => about(box, moment(time, now, words));
	if (isEnded(box)) {
		return [box.restorableUntil ? words.restorable(moment(box.restorableUntil, now, words)) : words.notRestorable];
	}
	const lines: string[] = [];
	if (isUp(box) && box.freeze) {
		const { at: freezesAt, blockedBy } = box.freeze;
		const before = !box.stopsAt || !freezesAt || Date.parse(freezesAt) < Date.parse(box.stopsAt);
		if (freezesAt && before) lines.push(words.freezes(at(freezesAt)));
		else if (!freezesAt && blockedBy.length > 0) lines.push(words.heldOpen);
	}
	if (box.stopsAt) lines.push(words.stops(at(box.stopsAt)));
	else if (box.keep) lines.push(words.neverStops);
	return lines;
}

function hold(held: Hold, now: number, words: Words): { text: string; until: string } {
	const known = words.holds[held.kind] ?? words.holdOther(held.kind);
	// A label may stand for several: `npm run dev and 2 more`.
	const [, label = held.label, more] = /^(.*) and (\d+) more$/s.exec(held.label ?? '') ?? [];
	const text =
		held.kind === 'background' && label ? words.backgroundCommand(`\`${label}\``, Number(more ?? 0)) : known;
	const until = held.until ? words.countsUntil(moment(held.until, now, words)) : words.untilEnds;
	return { text, until };
}

export interface Reason {
	text: string;
	until?: string;
}

/** Why a box is as it is. */
export function reasons(box: Box, now: number, words: Words): Reason[] {
	const told: Reason[] = [];
	const reason = box.statusReason;
	if (box.waitsForRoom) {
		told.push({ text: words.queued(box.waitsForRoom.before, moment(box.waitsForRoom.until, now, words)) });
	}
	switch (box.status) {
		case 'claimed':
		case 'starting':
			told.push({ text: words.starting });
			break;
		case 'freezing':
			told.push({ text: words.freezing });
			break;
		case 'thawing':
			told.push({ text: words.thawing });
			break;
		case 'ready':
		case 'takeover': {
			const holds = box.freeze?.blockedBy ?? [];
			told.push(...holds.map((held) => hold(held, now, words)));
			if (holds.length === 0) told.push({ text: words.quiet(ago(box.lastUsedAt, now, words)) });
			if (box.egress?.failure) told.push({ text: words.noWayOut(box.egress.failure.error) });
			break;
		}
		case 'frozen':
			if (!box.waitsForRoom) told.push({ text: reason ? words.frozenBecause(words.reason(reason)) : words.frozenIdle });
			told.push({ text: words.frozenWith[box.keeps ?? ''] ?? words.notUsing });
			if (box.tier === 'ram') told.push({ text: words.inRam });
			if (box.snapshotError) told.push({ text: words.noCopy(box.snapshotError) });
			break;
		default:
			if (reason) told.push({ text: words.next.goneReason(words.reason(reason)) });
	}
	return told;
}

/** What the rules do with it if nobody does anything, in order. */
export function prospects(box: Box, now: number, words: Words): string[] {
	const when = (at: string) => about(box, moment(at, now, words));
	if (isEnded(box)) {
		if (!box.restorableUntil) return [words.next.gone];
		const at = moment(box.restorableUntil, now, words);
		return [words.next.restoreUntil(at, distance(box.restorableUntil, now, words))];
	}
	const told: string[] = [];
	if (isUp(box)) {
		const at = box.freeze?.at;
		if (at && (!box.stopsAt || Date.parse(at) < Date.parse(box.stopsAt))) {
			told.push(words.next.freezeAt(when(at), distance(at, now, words)));
		} else if (!at) {
			told.push(box.freeze && box.freeze.blockedBy.length > 0 ? words.next.freezeHeld : words.neverFreezes);
		}
	}
	if (isAsleep(box)) told.push(words.next.wakes);
	if (box.idleTimeoutMin) told.push(words.next.ownLimit(span(box.idleTimeoutMin * 60, words)));
	if (box.stopsAt) told.push(words.next.stopAt(when(box.stopsAt), distance(box.stopsAt, now, words)));
	else told.push(box.keep ? words.next.kept : words.next.never);
	return told;
}

export interface Point {
	kind: keyof Words['points'];
	at: number;
	/** It lies ahead and moves if the box is used. */
	guess: boolean;
}

/** Moments of a box's past and future, in order. */
export function points(box: Box, now: number): Point[] {
	const found: Point[] = [];
	const add = (kind: Point['kind'], at: string | undefined, guess = false) => {
		if (at) found.push({ kind, at: Date.parse(at), guess });
	};
	add('created', box.createdAt);
	add('used', box.lastUsedAt);
	if (isAsleep(box)) add('frozen', lastOf(box, 'frozen'));
	if (isEnded(box)) {
		add('stopped', lastOf(box, 'ended'));
		add('restore', box.restorableUntil);
	} else {
		if (isUp(box) && box.freeze?.at && !(box.stopsAt && box.stopsAt <= box.freeze.at)) add('freeze', box.freeze.at, true);
		add('stop', box.stopsAt, isUp(box));
	}
	found.push({ kind: 'now', at: now, guess: false });
	// What is said of the same moment is said once: a new box was used when it was made.
	const unique = found.filter((point) => point.kind !== 'used' || Math.abs(point.at - Date.parse(box.createdAt)) > 5_000);
	return unique.sort((a, b) => a.at - b.at);
}

/** When the record of its present state was made. */
function lastOf(box: Box, what: 'frozen' | 'ended'): string | undefined {
	const rules = what === 'frozen' ? ['4.9', '4.10'] : ['2.1', '2.2', '6.5', '6.6', '6.2', '6.1'];
	const why = [...(box.why ?? [])].reverse();
	return why.find((reason) => rules.includes(reason.rule))?.at;
}

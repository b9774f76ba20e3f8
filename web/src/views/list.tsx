// The list of boxes, in the sections of rule 9.4.

import { useComputed, useSignal } from '@preact/signals';
import { memo } from '../memo';
import { useEffect, useRef } from 'preact/hooks';
import {
	goneAt,
	isEnded,
	isInUse,
	isLeft,
	isSoonGone,
	isTesting,
	label,
	nameOf,
	needsPerson,
	outlook,
	tone,
	unusedSec,
} from '../explain';
import { lastNote, wantNote } from '../last-notes';
import { go, paths } from '../route';
import { boxes, loaded, now } from '../store';
import { moment, span } from '../time';
import type { Box } from '../types';
import { coded, Icon, Link } from '../ui';
import { words } from '../words';
import { Continue, Restore, ShutDown } from './actions';

type Order = 'used' | 'stops';
/** Rows that are drawn at first; more come as one gets near the end. */
const ROWS = 60;

export function List() {
	const w = words.value;
	const search = useSignal('');
	const order = useSignal<Order>('used');
	const matching = useComputed(() => {
		const wanted = search.value.trim().toLowerCase();
		const found = [...boxes.value.values()].filter((box) => matches(box, wanted));
		return found.sort(order.value === 'used' ? byUse : bySoonest);
	});
	const active = useComputed(() => matching.value.filter((box) => !isEnded(box)));
	const stopped = useComputed(() => matching.value.filter(isEnded));
	const ready = useComputed(() => active.value.filter(needsPerson));
	const testing = useComputed(() => active.value.filter(isTesting));
	if (!loaded.value) return <Loading />;
	if (boxes.value.size === 0) {
		return (
			<div class="empty">
				<h1>{w.noBoxes}</h1>
				<p>{coded(w.noBoxesHelp)}</p>
			</div>
		);
	}
	return (
		<>
			<h1 class="out-of-sight">{w.boxes}</h1>
			<SoonGone />
			<div class="tools">
				<label class="search">
					<Icon name="search" />
					<input
						type="search"
						placeholder={w.search}
						aria-label={w.search}
						value={search.value}
						onInput={(event) => (search.value = event.currentTarget.value)}
					/>
				</label>
				<div class="choice" role="group" aria-label={w.sort}>
					{(['used', 'stops'] as const).map((name) => (
						<button key={name} type="button" aria-pressed={order.value === name} onClick={() => (order.value = name)}>
							{w.sorts[name]}
						</button>
					))}
				</div>
			</div>
			<Section id="ready" title={w.readyForYou} boxes={ready.value} empty={w.noneReady} />
			<Section id="testing" title={w.aiTesting} boxes={testing.value} empty={w.noTesting} />
			<Section id="all" title={w.all} boxes={active.value} empty={search.value ? w.noMatch : w.noBoxes} />
			<Section id="stopped" title={w.stopped} boxes={stopped.value} empty={search.value ? w.noMatch : w.noStopped} />
		</>
	);
}

function matches(box: Box, wanted: string): boolean {
	if (wanted === '') return true;
	return [box.name, box.goal, box.id].some((text) => text?.toLowerCase().includes(wanted));
}

const byUse = (a: Box, b: Box) =>
	Number(isInUse(b)) - Number(isInUse(a)) || Date.parse(b.lastUsedAt) - Date.parse(a.lastUsedAt) || (a.id < b.id ? -1 : 1);
const end = (box: Box) => Date.parse(goneAt(box) ?? '') || Number.MAX_SAFE_INTEGER;
const bySoonest = (a: Box, b: Box) => end(a) - end(b) || byUse(a, b);

function Loading() {
	return (
		<div class="rows" aria-busy="true">
			{[0, 1, 2, 3].map((row) => (
				<div key={row} class="row ghost" />
			))}
		</div>
	);
}

/** Boxes that are about to be gone, where nobody can overlook them. */
function SoonGone() {
	const w = words.value;
	const soon = useComputed(() => {
		const found = [...boxes.value.values()].filter((box) => !isEnded(box) && isSoonGone(box, now.value));
		return found.sort(bySoonest);
	});
	if (soon.value.length === 0) return null;
	const shown = soon.value.slice(0, 5);
	return (
		<div class="banner warn soon" role="status">
			<Icon name="alert" />
			<p>
				{w.soonGone(soon.value.length)}{' '}
				{shown.map((box, index) => (
					<span key={box.id}>
						{index > 0 && ', '}
						<Link to={paths.box(box.id)}>{nameOf(box)}</Link> ({w.stops(moment(goneAt(box) ?? '', now.value, w))})
					</span>
				))}
				{soon.value.length > shown.length && ' …'}
			</p>
		</div>
	);
}

function Section(props: { id: string; title: string; boxes: Box[]; empty?: string }) {
	const w = words.value;
	const rows = useSignal(ROWS);
	const mark = useRef<HTMLButtonElement>(null);
	const rest = props.boxes.length - rows.value;
	useEffect(() => {
		if (!mark.current) return;
		const seen = new IntersectionObserver(
			(entries) => {
				if (entries.some((entry) => entry.isIntersecting)) rows.value += ROWS;
			},
			{ rootMargin: '800px' },
		);
		seen.observe(mark.current);
		return () => seen.disconnect();
	}, [rest > 0]);
	return (
		<section aria-labelledby={`section-${props.id}`} class="section" data-section={props.id}>
			<h2 id={`section-${props.id}`}>
				{props.title} <span class="count">{props.boxes.length}</span>
			</h2>
			{props.boxes.length === 0 && props.empty && <p class="muted none">{props.empty}</p>}
			<ul class="rows">
				{props.boxes.slice(0, rows.value).map((box) => (
					<Row key={box.id} box={box} />
				))}
			</ul>
			{rest > 0 && (
				<button ref={mark} type="button" class="button plain wide" onClick={() => (rows.value += ROWS)}>
					{w.more(Math.min(ROWS, rest))}
				</button>
			)}
		</section>
	);
}

const Row = memo(function Row({ box }: { box: Box }) {
	const w = words.value;
	const at = now.value;
	const element = useRef<HTMLLIElement>(null);
	const note = lastNote(box.id).value?.note;
	const soon = isSoonGone(box, at);
	const unused = unusedSec(box, at);
	useEffect(() => wantNote(box, element.current), [box.id, box.lastUsedAt]);
	const open = (event: MouseEvent) => {
		const inside = event.target instanceof Element && event.target.closest('a, button, dialog');
		if (!inside && !getSelection()?.toString()) go(paths.box(box.id));
	};
	return (
		<li ref={element} class={`row ${tone(box)}`} data-box={box.id} onClick={open}>
			<span class="dot" aria-hidden="true" />
			<div class="what">
				<div class="first">
					<Link to={paths.box(box.id)} class="name">
						{nameOf(box)}
					</Link>
					<span class="label">{w.labels[label(box)]}</span>
				</div>
				<p class={box.goal ? 'goal' : 'goal muted'} title={box.goal}>
					{box.goal ?? w.noGoal}
				</p>
				{note && (
					<p class="note" title={note}>
						<span class="out-of-sight">{w.lastNote}: </span>
						{note}
					</p>
				)}
			</div>
			<div class="when">
				<span class="unused">
					{isEnded(box) ? box.statusReason && w.reason(box.statusReason) : isInUse(box) ? w.inUse : unused < 5 ? w.justNow : w.unused(span(unused, w))}
				</span>
				{outlook(box, at, w).map((line, index, all) => (
					<span key={index} class={soon && index === all.length - 1 ? 'soon' : undefined}>
						{line}
					</span>
				))}
			</div>
			<div class="acts">
				{isLeft(box) && <Continue box={box} />}
				{isLeft(box) && <ShutDown box={box} />}
				{isEnded(box) && box.restorableUntil && <Restore box={box} />}
			</div>
		</li>
	);
});

// What happened to which box, by which rule.

import { useComputed, useSignal } from '@preact/signals';
import { nameOf } from '../explain';
import { paths } from '../route';
import { boxes, events, now } from '../store';
import { exact, full } from '../time';
import type { BoxEvent } from '../types';
import { Icon, Link, Told } from '../ui';
import { words } from '../words';

const ROWS = 200;

export function Events() {
	const w = words.value;
	const search = useSignal('');
	const kind = useSignal('');
	const rows = useSignal(ROWS);
	const name = (id: string) => {
		const box = boxes.value.get(id);
		return box ? nameOf(box) : id.slice(0, 8);
	};
	const found = useComputed(() => {
		const wanted = search.value.trim().toLowerCase();
		const fits = (event: BoxEvent) => {
			if (kind.value && event.kind !== kind.value) return false;
			if (wanted === '') return true;
			const texts = [event.box, name(event.box), event.rule, event.text, boxes.value.get(event.box)?.goal];
			return texts.some((text) => text?.toLowerCase().includes(wanted));
		};
		return events.value.filter(fits).reverse();
	});
	const kinds = useComputed(() => [...new Set(events.value.map((event) => event.kind))].sort());
	const rest = found.value.length - rows.value;
	return (
		<section class="events" aria-labelledby="events">
			<h1 id="events">{w.events}</h1>
			<p class="muted">{w.eventsHelp}</p>
			<div class="tools">
				<label class="search">
					<Icon name="search" />
					<input
						type="search"
						placeholder={w.filterBox}
						aria-label={w.filterBox}
						value={search.value}
						onInput={(event) => (search.value = event.currentTarget.value)}
					/>
				</label>
				<select
					aria-label={w.filterKind}
					value={kind.value}
					onChange={(event) => (kind.value = event.currentTarget.value)}
				>
					<option value="">{w.anyKind}</option>
					{kinds.value.map((name) => (
						<option key={name} value={name}>
							{w.kinds[name] ?? name}
						</option>
					))}
				</select>
			</div>
			{found.value.length === 0 && <p class="empty">{events.value.length === 0 ? w.noEvents : w.noEventsMatch}</p>}
			<ol class="event-list">
				{found.value.slice(0, rows.value).map((event) => (
					<li key={event.seq} data-kind={event.kind}>
						<time dateTime={event.at} title={full(event.at, w)}>
							{exact(event.at, now.value, w)}
						</time>
						<Link to={paths.box(event.box)}>{name(event.box)}</Link>
						<span class={`kind ${event.kind}`}>{w.kinds[event.kind] ?? event.kind}</span>
						<Told text={event.text ?? ''} />
						{event.rule && <span class="rule">{w.rule(event.rule)}</span>}
					</li>
				))}
			</ol>
			{rest > 0 && (
				<button type="button" class="button plain wide" onClick={() => (rows.value += ROWS)}>
					{w.more(Math.min(ROWS, rest))}
				</button>
			)}
		</section>
	);
}

// The frame around every view: where one is, what the account has, and the menu.

import { useComputed } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { moment } from '../time';
import { paths, route } from '../route';
import { account, live, now, session, slots } from '../store';
import { Link, Messages } from '../ui';
import { words } from '../words';
import { BoxView } from './box';
import { Events } from './events';
import { List } from './list';
import { Menu } from './menu';
import { SignIn } from './sign-in';

export function Page() {
	const w = words.value;
	if (session.value === 'unknown') return <div class="blank" aria-busy="true" />;
	return (
		<>
			{session.value === 'out' ? <SignIn /> : <Inside />}
			{!live.value && (
				<p class="offline" role="alert">
					{session.value === 'out' ? w.unreachable : w.notLive}
				</p>
			)}
			<Messages />
		</>
	);
}

function Inside() {
	const w = words.value;
	const here = route.value;
	return (
		<>
			<a class="skip" href="#content">
				{w.skip}
			</a>
			<header class="top">
				<Link to={paths.list} class="brand">
					<img src="/app/icon.svg" alt="" width="26" height="26" />
					<span>{w.title}</span>
				</Link>
				<nav class="tabs" aria-label={w.title}>
					<Link to={paths.list} aria-current={here.view === 'list' ? 'page' : undefined}>
						{w.boxes}
					</Link>
					<Link to={paths.events} aria-current={here.view === 'events' ? 'page' : undefined}>
						{w.events}
					</Link>
				</nav>
				<Meters />
				<Menu />
			</header>
			<Credits />
			<main id="content" tabIndex={-1}>
				<View />
			</main>
		</>
	);
}

function View() {
	const w = words.value;
	const here = route.value;
	useEffect(() => {
		if (here.view !== 'box') document.title = here.view === 'events' ? `${w.events} · ${w.title}` : w.title;
	}, [here, w]);
	switch (here.view) {
		case 'list':
			return <List />;
		case 'events':
			return <Events />;
		case 'box':
			return <BoxView key={here.id} id={here.id} part={here.part} />;
		case 'nothing':
			return <p class="empty">{w.pageMissing}</p>;
	}
}

const amount = (credits: number, locale: string) =>
	credits.toLocaleString(locale, { maximumFractionDigits: credits < 10 ? 2 : 0 });

/** Slots and credits (rules 13.6, 14.5). */
function Meters() {
	const w = words.value;
	const full = useComputed(() => slots.value !== null && slots.value.running >= slots.value.maximum);
	const places = slots.value;
	const own = account.value?.credits;
	return (
		<div class="meters">
			{places && (
				<span
					class={full.value ? 'meter full' : 'meter'}
					title={w.slotsTitle(places.running, places.maximum, places.waiting)}
				>
					<meter min={0} max={places.maximum} value={places.running} aria-label={w.slots(places.running, places.maximum)} />
					{w.slots(places.running, places.maximum)}
					{places.waiting > 0 && ` · ${w.waiting(places.waiting)}`}
				</span>
			)}
			{own && !own.unlimited && own.left !== undefined && (
				<span class="meter credits" title={own.runsOutAt && w.runOut(moment(own.runsOutAt, now.value, w))}>
					{w.creditsLeft(amount(Math.max(0, own.left), w.locale))}
				</span>
			)}
		</div>
	);
}

function Credits() {
	const w = words.value;
	const own = account.value?.credits;
	if (!own || own.unlimited || own.left === undefined) return null;
	if (own.left <= 0) {
		return (
			<p class="banner bad" role="alert">
				{w.outOfCredits}
			</p>
		);
	}
	const soon = own.runsOutAt && Date.parse(own.runsOutAt) - now.value < 2 * 3_600_000;
	if (!soon || !own.runsOutAt) return null;
	return (
		<p class="banner warn">
			{w.creditsLeft(amount(own.left, w.locale))} · {w.perHour(amount(own.perHour, w.locale))} ·{' '}
			{w.runOut(moment(own.runsOutAt, now.value, w))}
		</p>
	);
}

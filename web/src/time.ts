// How moments and spans are said. Exact figures stand as they are; estimates carry a ~ (rule 13.3).

import type { Words } from './words';

const MIN = 60;
const HOUR = 60 * MIN;
const DAY = 24 * HOUR;

/** A length of time: `45 s`, `12 min`, `2 h 30 min`, `4 days`. */
export function span(seconds: number, words: Words): string {
	const { sec, min, hour, day } = words.units;
	if (seconds < 90) return sec(Math.max(0, Math.round(seconds)));
	const minutes = Math.round(seconds / MIN);
	if (minutes < 90) return min(minutes);
	if (seconds < 2 * DAY) {
		const hours = Math.floor(minutes / 60);
		const rest = minutes % 60;
		if (rest === 0) return hour(hours);
		return hours < 10 ? `${hour(hours)} ${min(rest)}` : hour(Math.round(minutes / 60));
	}
	return day(Math.round(seconds / DAY));
}

const dayOf = (at: number) => {
	const date = new Date(at);
	return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
};

const formats = new Map<string, Intl.DateTimeFormat>();
function format(locale: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
	const key = locale + JSON.stringify(options);
	let made = formats.get(key);
	if (!made) formats.set(key, (made = new Intl.DateTimeFormat(locale, options)));
	return made;
}

const CLOCK = { hour: '2-digit', minute: '2-digit', hour12: false } as const;

/** A moment as a person says it: `15:40`, `tomorrow 15:40`, `9 Mar 15:40`. */
export function moment(at: string, now: number, words: Words): string {
	const time = Date.parse(at);
	const clock = format(words.locale, CLOCK).format(time);
	const days = Math.round((dayOf(time) - dayOf(now)) / (DAY * 1000));
	if (days === 0) return clock;
	if (days === 1) return words.tomorrow(clock);
	if (days === -1) return words.yesterday(clock);
	return `${format(words.locale, { day: 'numeric', month: 'short' }).format(time)} ${clock}`;
}

/** The moment to the second, with its day unless that is today's. */
export function exact(at: string, now: number, words: Words): string {
	const time = Date.parse(at);
	const clock = format(words.locale, { ...CLOCK, second: '2-digit' }).format(time);
	if (dayOf(time) === dayOf(now)) return clock;
	return `${format(words.locale, { day: 'numeric', month: 'short' }).format(time)} ${clock}`;
}

/** The whole moment, for titles. */
export function full(at: string, words: Words): string {
	return format(words.locale, { dateStyle: 'full', timeStyle: 'medium' }).format(Date.parse(at));
}

/** How far off: `in 12 min`, `12 min ago`, `just now`. */
export function distance(at: string, now: number, words: Words): string {
	const seconds = (Date.parse(at) - now) / 1000;
	if (seconds >= 0) return words.in(span(seconds, words));
	return ago(at, now, words);
}

export function ago(at: string, now: number, words: Words): string {
	const seconds = (now - Date.parse(at)) / 1000;
	return seconds < 5 ? words.justNow : words.ago(span(seconds, words));
}

/** Whether a moment comes within so many minutes. */
export function within(at: string | undefined, now: number, minutes: number): boolean {
	return at !== undefined && Date.parse(at) - now <= minutes * 60_000;
}

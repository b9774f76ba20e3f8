// Notifications of the browser, for who asked for them: a box that waits for the person, or that will soon be gone.

import { effect, signal } from '@preact/signals';
import { goneAt, isSoonGone, nameOf, needsPerson } from './explain';
import { go, paths } from './route';
import { readSetting, writeSetting } from './settings';
import { boxes, loaded, now } from './store';
import { moment } from './time';
import type { Box } from './types';
import { say } from './ui';
import { words } from './words';

const possible = 'Notification' in globalThis;

export const notices = signal(possible && readSetting('notify') === 'on' && Notification.permission === 'granted');

export async function offerNotices() {
	const allowed = possible && (await Notification.requestPermission()) === 'granted';
	if (!allowed) say(words.value.notifyDenied, true);
	set(allowed);
}

export function stopNotices() {
	set(false);
}

function set(on: boolean) {
	notices.value = on;
	writeSetting('notify', on ? 'on' : 'off');
}

/** What was told already: a use moves the end, and a new end is news. */
const told = new Set<string>();

function tell(key: string, title: string, box: Box) {
	if (told.has(key)) return;
	if (told.size > 10_000) told.clear();
	told.add(key);
	const notice = new Notification(title, { body: box.goal ?? words.value.notices.soonGoneBody, tag: box.id, icon: '/app/icon.svg' });
	notice.onclick = () => {
		window.focus();
		go(paths.box(box.id));
		notice.close();
	};
}

effect(() => {
	if (!notices.value || !loaded.value) return;
	const w = words.value;
	for (const box of boxes.value.values()) {
		const at = goneAt(box);
		if (at && isSoonGone(box, now.value)) {
			tell(`${box.id} ${at}`, w.notices.soonGone(nameOf(box), moment(at, now.value, w)), box);
		}
		if (needsPerson(box)) tell(`${box.id} ready ${box.lastUsedAt}`, w.notices.ready(nameOf(box)), box);
	}
});

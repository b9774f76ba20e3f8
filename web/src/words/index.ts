// Which language the page speaks: what was chosen here, else the browser's. Owns the choice; the words are in files of
// their own.

import { computed, effect, signal } from '@preact/signals';
import { readSetting, writeSetting } from '../settings';
import { en, type Words } from './en';
import { ja } from './ja';

export type { Words };

export const LANGUAGES = { en: 'English', ja: '日本語' } as const;
export type Language = keyof typeof LANGUAGES;

const all: Record<Language, Words> = { en, ja };

function preferred(): Language {
	const chosen = readSetting('language');
	if (chosen === 'en' || chosen === 'ja') return chosen;
	return navigator.languages.some((tag) => /^ja\b/.test(tag)) && /^ja\b/.test(navigator.language) ? 'ja' : 'en';
}

export const language = signal<Language>(preferred());
/** The words of the language. */
export const words = computed<Words>(() => all[language.value]);

export function choose(next: Language) {
	language.value = next;
	writeSetting('language', next);
}

effect(() => {
	document.documentElement.lang = language.value;
});

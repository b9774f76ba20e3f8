// Light or dark: what was chosen here, else what the device says.

import { effect, signal } from '@preact/signals';
import { readSetting, writeSetting } from './settings';

export type Theme = 'auto' | 'light' | 'dark';
export const THEMES: Theme[] = ['auto', 'light', 'dark'];

const chosen = readSetting('theme');
export const theme = signal<Theme>(chosen === 'light' || chosen === 'dark' ? chosen : 'auto');

export function chooseTheme(next: Theme) {
	theme.value = next;
	writeSetting('theme', next);
}

effect(() => {
	const root = document.documentElement;
	if (theme.value === 'auto') delete root.dataset.theme;
	else root.dataset.theme = theme.value;
});

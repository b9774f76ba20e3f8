// The menu: language, colours, notifications, signing out.

import { useEffect, useRef } from 'preact/hooks';
import { send } from '../api';
import { notices, offerNotices, stopNotices } from '../notices';
import { account, end } from '../store';
import { chooseTheme, theme, THEMES, type Theme } from '../theme';
import { Icon, say, sentence } from '../ui';
import { choose, language, LANGUAGES, words, type Language } from '../words';

export function Languages() {
	return (
		<div class="choice" role="group" aria-label={words.value.language}>
			{(Object.keys(LANGUAGES) as Language[]).map((tag) => (
				<button key={tag} type="button" lang={tag} aria-pressed={language.value === tag} onClick={() => choose(tag)}>
					{LANGUAGES[tag]}
				</button>
			))}
		</div>
	);
}

async function signOut() {
	try {
		await send('DELETE', '/v1/session');
		end();
	} catch (error) {
		say(sentence(error), true);
	}
}

export function Menu() {
	const w = words.value;
	const element = useRef<HTMLDetailsElement>(null);
	useEffect(() => {
		const close = (event: Event) => {
			const menu = element.current;
			if (!menu?.open) return;
			if (event instanceof KeyboardEvent) {
				if (event.key !== 'Escape') return;
				menu.querySelector('summary')?.focus();
			} else if (event.target instanceof Node && menu.contains(event.target)) return;
			menu.open = false;
		};
		document.addEventListener('mousedown', close);
		document.addEventListener('keydown', close);
		return () => {
			document.removeEventListener('mousedown', close);
			document.removeEventListener('keydown', close);
		};
	}, []);
	return (
		<details class="menu" ref={element}>
			<summary aria-label={w.menu} class="button quiet">
				<Icon name="more" />
			</summary>
			<div class="sheet">
				{account.value && <p class="who">{account.value.account}</p>}
				<p class="caption">{w.language}</p>
				<Languages />
				<p class="caption">{w.theme}</p>
				<div class="choice" role="group" aria-label={w.theme}>
					{THEMES.map((name: Theme) => (
						<button key={name} type="button" aria-pressed={theme.value === name} onClick={() => chooseTheme(name)}>
							{w.themes[name]}
						</button>
					))}
				</div>
				<p class="caption">{w.notify}</p>
				<label class="check">
					<input
						type="checkbox"
						checked={notices.value}
						onChange={(event) => void (event.currentTarget.checked ? offerNotices() : stopNotices())}
					/>
					{w.notifyOn}
				</label>
				<button type="button" class="button plain wide" onClick={() => void signOut()}>
					{w.signOut}
				</button>
			</div>
		</details>
	);
}

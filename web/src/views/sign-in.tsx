// Signing in: with a key, or with the one-time link that the server's owner was given.

import { signal } from '@preact/signals';
import { useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api';
import { begin, look, session } from '../store';
import { Button, coded, sentence } from '../ui';
import { words } from '../words';
import { Languages } from './menu';

/** The link was no good. */
const badLink = signal(false);

/** What a link carries behind the `#`, taken out of the address at once: it is not to be seen, kept or sent on. */
function tokenOfLink(): string | null {
	const token = new URLSearchParams(location.hash.slice(1)).get('token');
	if (token !== null) history.replaceState(null, '', location.pathname + location.search);
	return token;
}

/** Goes in with the link, or as whoever is signed in already. */
export async function enter() {
	const token = tokenOfLink();
	if (token !== null) {
		try {
			await call('POST', '/v1/session', { token });
			return begin();
		} catch {
			badLink.value = true;
		}
	}
	await look();
	if (session.value === 'in') badLink.value = false;
}

addEventListener('hashchange', () => {
	if (location.hash.includes('token=')) void enter();
});

export function SignIn() {
	const w = words.value;
	const field = useRef<HTMLInputElement>(null);
	const [busy, setBusy] = useState(false);
	const [trouble, setTrouble] = useState('');
	const submit = async (event: Event) => {
		event.preventDefault();
		const key = field.current?.value.trim() ?? '';
		if (key === '') return field.current?.focus();
		setBusy(true);
		setTrouble('');
		try {
			await call('POST', '/v1/session', { key });
			begin();
		} catch (error) {
			const wrong = error instanceof ApiError && [400, 401].includes(error.status);
			setTrouble(wrong ? w.wrongKey : sentence(error));
			setBusy(false);
			field.current?.select();
		}
	};
	return (
		<main class="sign-in" id="content">
			<form onSubmit={(event) => void submit(event)}>
				<img src="/app/icon.svg" alt="" width="48" height="48" />
				<h1>{w.title}</h1>
				<p class="muted">{coded(w.signInHelp)}</p>
				{badLink.value && (
					<p class="banner warn" role="alert">
						{coded(w.signInLink)}
					</p>
				)}
				<label for="key">{w.key}</label>
				<input
					id="key"
					ref={field}
					type="password"
					autocomplete="current-password"
					autocapitalize="off"
					spellcheck={false}
					aria-describedby="key-hint"
					aria-invalid={trouble !== ''}
					placeholder="e2b_…"
				/>
				<p id="key-hint" class="hint">
					{w.keyHint}
				</p>
				{trouble && (
					<p class="trouble" role="alert">
						{trouble}
					</p>
				)}
				<Button type="submit" kind="main" busy={busy && w.signingIn}>
					{w.signIn}
				</Button>
				<Languages />
			</form>
		</main>
	);
}

// Something that is looked at again and again while it is on the screen, and rarely while the page is hidden.

import { useEffect, useState } from 'preact/hooks';

/** Looks now, then every `everyMs` after an answer (at most every minute while hidden), and whenever `again` changes. */
export function useWatched<T>(look: (signal: AbortSignal) => Promise<T>, everyMs: number, again: unknown[]) {
	const [seen, setSeen] = useState<{ value?: T; error?: unknown }>({});
	useEffect(() => {
		const ending = new AbortController();
		let timer: ReturnType<typeof setTimeout> | undefined;
		let busy = false;
		const turn = async () => {
			clearTimeout(timer);
			if (busy) return;
			busy = true;
			try {
				const value = await look(ending.signal);
				if (!ending.signal.aborted) setSeen({ value });
			} catch (error) {
				if (!ending.signal.aborted) setSeen((before) => ({ ...before, error }));
			}
			busy = false;
			if (!ending.signal.aborted) timer = setTimeout(() => void turn(), document.hidden ? 60_000 : everyMs);
		};
		const shown = () => {
			if (!document.hidden) void turn();
		};
		document.addEventListener('visibilitychange', shown);
		void turn();
		return () => {
			ending.abort();
			clearTimeout(timer);
			document.removeEventListener('visibilitychange', shown);
		};
	}, again);
	return seen;
}

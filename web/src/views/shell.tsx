// A box's terminal. Nothing is opened before the person asks: opening one is use of the box and wakes it, and so is typing;
// looking at it is not.

import { useEffect, useRef, useState } from 'preact/hooks';
import { isAsleep } from '../explain';
import type { Happened } from '../terminal';
import type { Box } from '../types';
import { Button, say, sentence } from '../ui';
import { words } from '../words';

type Phase = 'closed' | 'opening' | 'open' | 'asleep' | 'ended' | 'lost';

export function Shell({ box }: { box: Box }) {
	const w = words.value;
	const place = useRef<HTMLDivElement>(null);
	const close = useRef<() => void>(() => {});
	const [phase, setPhase] = useState<Phase>('closed');
	useEffect(() => () => close.current(), []);
	const happened = (news: Happened) => {
		if (news.what === 'trouble') say(news.text, true);
		else setPhase(news.what === 'awake' ? 'open' : news.what);
	};
	const open = async () => {
		setPhase('opening');
		close.current();
		try {
			const { openTerminal } = await import('../terminal');
			if (place.current) close.current = openTerminal(place.current, box.id, w.terminal.label, happened);
		} catch (error) {
			say(sentence(error), true);
			setPhase('closed');
		}
	};
	const idle = phase === 'closed' || phase === 'ended' || phase === 'lost';
	return (
		<section class="card" aria-label={w.actions.terminal}>
			<div class="terminal-state">
				{idle && (
					<Button icon="terminal" kind="main" onClick={() => void open()}>
						{phase === 'closed' ? w.terminal.open : w.terminal.again}
					</Button>
				)}
				<p role="status">{phase === 'closed' && isAsleep(box) ? w.terminal.wakes : w.terminal.phases[phase]}</p>
			</div>
			<div ref={place} class={phase === 'closed' ? 'terminal-place hidden' : 'terminal-place'} data-phase={phase} />
		</section>
	);
}

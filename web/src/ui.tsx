// Small parts that every view uses: icons, buttons, dialogs, messages, links inside the page.

import { signal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { ApiError } from './api';
import { go } from './route';
import { words } from './words';

const ICONS = {
	back: 'M15 6l-6 6 6 6',
	wake: 'M12 3v9M7 6.5a7 7 0 1 0 10 0',
	freeze: 'M12 3v18M4.2 7.5l15.6 9M19.8 7.5l-15.6 9',
	restore: 'M4 5v5h5M4.5 10a8 8 0 1 1-.5 4',
	stop: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
	continue: 'M4 5l9 7-9 7zM17 5v14',
	keep: 'M12 3v4M8 7h8l-1 6 3 3H6l3-3zM12 16v5',
	edit: 'M4 20l1-5L16 4l4 4L9 19z',
	clock: 'M12 7v5l3 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z',
	files: 'M3 6h6l2 2h10v11H3z',
	terminal: 'M4 5h16v14H4zM7 9l3 3-3 3M12 15h4',
	copy: 'M9 9h11v11H9zM15 9V4H4v11h5',
	open: 'M14 4h6v6M20 4l-9 9M18 14v6H4V6h6',
	bell: 'M6 17V11a6 6 0 0 1 12 0v6l2 2H4zM10 21h4',
	search: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM20 20l-4.8-4.8',
	more: 'M4 7h16M4 12h16M4 17h16',
	down: 'M6 9l6 6 6-6',
	alert: 'M12 8v5M12 16.5v.01M12 3l9.5 17h-19z',
	upload: 'M12 16V5M7 10l5-5 5 5M4 20h16',
	download: 'M12 4v11M7 11l5 5 5-5M4 20h16',
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { name: IconName }) {
	return (
		<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
			<path d={ICONS[name]} />
		</svg>
	);
}

type ButtonProps = {
	icon?: IconName;
	kind?: 'main' | 'plain' | 'danger' | 'quiet';
	busy?: string | false;
	children: ComponentChildren;
} & Omit<JSX.IntrinsicElements['button'], 'icon' | 'children'>;

export function Button({ icon, kind = 'plain', busy = false, children, ...rest }: ButtonProps) {
	return (
		<button type="button" {...rest} class={`button ${kind}`} aria-busy={busy !== false} disabled={rest.disabled || busy !== false}>
			{busy !== false ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} />}
			<span>{busy !== false ? busy : children}</span>
		</button>
	);
}

interface LinkProps {
	to: string;
	children: ComponentChildren;
	class?: string;
	'aria-current'?: 'page';
}

/** A link inside the page. */
export function Link({ to, children, ...rest }: LinkProps) {
	const follow = (event: MouseEvent) => {
		if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
		event.preventDefault();
		go(to);
	};
	return (
		<a href={to} {...rest} onClick={follow}>
			{children}
		</a>
	);
}

interface Message {
	id: number;
	text: string;
	bad: boolean;
}

const messages = signal<readonly Message[]>([]);
let count = 0;

/** Shows a sentence for a while. */
export function say(text: string, bad = false) {
	const message = { id: ++count, text, bad };
	messages.value = [...messages.value.slice(-3), message];
	setTimeout(() => dismiss(message.id), bad ? 12_000 : 5_000);
}

function dismiss(id: number) {
	messages.value = messages.value.filter((message) => message.id !== id);
}

/** What went wrong, as a sentence. */
export function sentence(error: unknown): string {
	if (error instanceof ApiError) return error.status === 0 ? words.value.unreachable : error.message;
	return String(error);
}

export function Messages() {
	return (
		<div class="messages" role="status" aria-live="polite">
			{messages.value.map((message) => (
				<div key={message.id} class={message.bad ? 'message bad' : 'message'}>
					<span>{message.text}</span>
					<button type="button" aria-label={words.value.close} onClick={() => dismiss(message.id)}>
						×
					</button>
				</div>
			))}
		</div>
	);
}

/** A dialog in front of the page; Escape and a click beside it close it. */
export function Dialog(props: { title: string; close: () => void; children: ComponentChildren }) {
	const element = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		const before = document.activeElement;
		element.current?.showModal();
		return () => {
			if (before instanceof HTMLElement) before.focus();
		};
	}, []);
	const beside = (event: MouseEvent) => {
		if (event.target === element.current) props.close();
	};
	const cancel = (event: Event) => {
		event.preventDefault();
		props.close();
	};
	return (
		<dialog ref={element} class="dialog" aria-labelledby="dialog-title" onMouseDown={beside} onCancel={cancel}>
			<div class="dialog-body">
				<h2 id="dialog-title">{props.title}</h2>
				{props.children}
			</div>
		</dialog>
	);
}

/** Copies a text, also where the browser has no clipboard for pages without TLS. */
export async function copy(text: string) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const area = document.createElement('textarea');
		area.value = text;
		area.className = 'out-of-sight';
		(document.querySelector('dialog[open]') ?? document.body).append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
	}
	say(words.value.done.copied);
}

/** A sentence with commands in it, which stand between backquotes. */
export function coded(text: string) {
	return text.split('`').map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}

/** What the server tells in English, in the reader's words where they are known. */
export function Told({ text }: { text: string }) {
	const told = words.value.reason(text);
	return (
		<span class="text" lang={told === text ? 'en' : undefined}>
			{told}
		</span>
	);
}

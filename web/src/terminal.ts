// The terminal itself; loaded only where one is opened. Speaks to the box over a WebSocket: bytes are what is typed and what
// is shown, texts say what happens to the shell.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { boxPath } from './api';

export type Happened =
	| { what: 'open' }
	| { what: 'asleep' }
	| { what: 'awake' }
	| { what: 'ended'; exitCode: number | null }
	| { what: 'lost' }
	| { what: 'trouble'; text: string };

interface News {
	pid?: number;
	asleep?: boolean;
	error?: string;
	ended?: { exitCode: number | null };
}

/** What stands in for a style that a script wants to write: it shows nothing, and its text becomes a sheet of the page. */
function sheet(): HTMLElement {
	const element = document.createElement('template');
	const styles = new CSSStyleSheet();
	document.adoptedStyleSheets = [...document.adoptedStyleSheets, styles];
	Object.defineProperty(element, 'textContent', { get: () => '', set: (text: string) => styles.replaceSync(text) });
	const remove = element.remove.bind(element);
	element.remove = () => {
		document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== styles);
		remove();
	};
	return element;
}

/** Does something that makes styles. The page's policy refuses those that a script writes into it, and takes sheets. */
function withSheets(act: () => void) {
	const make = document.createElement;
	document.createElement = ((tag: string, options?: ElementCreationOptions) =>
		tag === 'style' ? sheet() : make.call(document, tag, options)) as typeof make;
	try {
		act();
	} finally {
		document.createElement = make;
	}
}

/** Opens a terminal in an element; gives what ends it. */
export function openTerminal(element: HTMLElement, boxId: string, label: string, happened: (news: Happened) => void) {
	const terminal = new Terminal({
		fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
		fontSize: 14,
		cursorBlink: true,
		scrollback: 5_000,
		// Programs choose colours for other grounds than this one.
		minimumContrastRatio: 4.5,
		theme: { background: '#10161d', foreground: '#dde5ee' },
	});
	const fit = new FitAddon();
	terminal.loadAddon(fit);
	withSheets(() => terminal.open(element));
	terminal.textarea?.setAttribute('aria-label', label);
	fit.fit();
	const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
	const size = `cols=${terminal.cols}&rows=${terminal.rows}`;
	const socket = new WebSocket(`${scheme}//${location.host}${boxPath(boxId, '/terminal')}?${size}`);
	socket.binaryType = 'arraybuffer';
	let over = false;
	socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
		if (typeof data !== 'string') return terminal.write(new Uint8Array(data));
		const news = JSON.parse(data) as News;
		if (news.pid !== undefined) happened({ what: 'open' });
		else if (news.asleep !== undefined) happened({ what: news.asleep ? 'asleep' : 'awake' });
		else if (news.error !== undefined) happened({ what: 'trouble', text: news.error });
		else if (news.ended) {
			over = true;
			happened({ what: 'ended', exitCode: news.ended.exitCode });
		}
	};
	socket.onclose = () => {
		if (!over) happened({ what: 'lost' });
		over = true;
	};
	const encoder = new TextEncoder();
	const send = (data: Uint8Array<ArrayBuffer> | string) => {
		if (socket.readyState === WebSocket.OPEN) socket.send(data);
	};
	terminal.onData((typed) => send(encoder.encode(typed)));
	terminal.onBinary((typed) => send(Uint8Array.from(typed, (char) => char.charCodeAt(0))));
	terminal.onResize(({ cols, rows }) => send(JSON.stringify({ cols, rows })));
	const resized = new ResizeObserver(() => fit.fit());
	resized.observe(element);
	terminal.focus();
	return () => {
		over = true;
		resized.disconnect();
		socket.close();
		terminal.dispose();
	};
}

// Which view is shown: the path of the address, and nothing else.

import { signal } from '@preact/signals';

export type Route =
	| { view: 'list' }
	| { view: 'events' }
	| { view: 'box'; id: string; part: 'page' | 'files' | 'terminal' }
	| { view: 'nothing' };

function read(): Route {
	const parts = location.pathname.split('/').filter(Boolean);
	if (parts[0] === 'app') parts.shift();
	const [first, id, part] = parts;
	if (first === undefined) return { view: 'list' };
	if (first === 'events' && id === undefined) return { view: 'events' };
	if (first === 'boxes' && id !== undefined) {
		if (part === undefined) return { view: 'box', id, part: 'page' };
		if (part === 'files' || part === 'terminal') return { view: 'box', id, part };
	}
	return { view: 'nothing' };
}

export const route = signal<Route>(read());

export const paths = {
	list: '/app',
	events: '/app/events',
	box: (id: string) => `/app/boxes/${id}`,
	files: (id: string) => `/app/boxes/${id}/files`,
	terminal: (id: string) => `/app/boxes/${id}/terminal`,
};

/** Goes to a view, as a click on a link does. */
export function go(path: string) {
	history.pushState(null, '', path);
	route.value = read();
	scrollTo(0, 0);
	// Whoever hears the page is told where they are.
	document.querySelector<HTMLElement>('main')?.focus();
}

addEventListener('popstate', () => {
	route.value = read();
});

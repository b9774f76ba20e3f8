// Sends what a page logs to Icebox: its console, errors nobody caught, and rejections nobody handled.
//
//   <script src="https://ICEBOX/logs.js" data-key="psw_..." data-release="1.2.0"></script>
//
// Put it before the page's own scripts. It must never harm the page: whatever goes wrong here stays here, what does not fit
// is counted and dropped, and nothing here writes to the console it listens to.
(() => {
	'use strict';

	const script = document.currentScript;
	const key = script?.dataset.key;
	if (!key || window.iceboxLogs) return;

	// As they are now: the page may wrap them, and what it wraps may log.
	const post = window.fetch?.bind(window);
	const beacon = navigator.sendBeacon?.bind(navigator);
	const later = window.setTimeout.bind(window);
	const now = Date.now.bind(Date);
	const stringify = JSON.stringify;

	const ENDPOINT = new URL(script.dataset.endpoint || '/v1/logs', script.src).href;
	const LEVELS = ['debug', 'info', 'warn', 'error'];
	const LOWEST = Math.max(0, LEVELS.indexOf(script.dataset.level));
	// Events that wait, and those of one request. Browsers refuse more than 64 KiB in requests that outlive their page.
	const MOST_WAITING = 200;
	const MOST_EVENTS = 100;
	const MOST_BYTES = 60_000;
	const MSG_LEN = 4_000;
	const STACK_LEN = 8_000;
	const EXTRA_LEN = 4_000;
	const PAUSE_MS = 1_000;
	const LONGEST_PAUSE_MS = 60_000;
	const TRIES = 5;

	let user = script.dataset.user;
	const common = {
		key,
		release: script.dataset.release,
		box: /^[a-z0-9]+-([a-z0-9]{20})\./.exec(location.hostname)?.[1],
		session: remembered('sessionStorage', 'icebox.session'),
		device: remembered('localStorage', 'icebox.device'),
	};

	let waiting = [];
	let dropped = 0;
	let failed = 0;
	let sending = false;
	let planned = false;
	let busy = false;
	let off = false;

	function random() {
		const bytes = crypto.getRandomValues(new Uint8Array(12));
		return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
	}

	// An id that a browser keeps; one for this page alone where it may keep nothing.
	function remembered(storage, name) {
		let id;
		try {
			id = window[storage].getItem(name);
			if (!id) {
				id = random();
				window[storage].setItem(name, id);
			}
		} catch {
			id ||= random();
		}
		return id;
	}

	function json(value) {
		const seen = new WeakSet();
		let left = 300;
		return stringify(value, (_, inner) => {
			if (typeof inner === 'bigint' || typeof inner === 'symbol') return String(inner);
			if (typeof inner === 'function') return '[function]';
			if (typeof inner === 'string') return inner.slice(0, EXTRA_LEN);
			if (typeof inner !== 'object' || inner === null) return inner;
			if (seen.has(inner) || --left < 0) return '[…]';
			seen.add(inner);
			if (inner instanceof Error) return String(inner);
			if (inner instanceof Node) return `<${inner.nodeName}>`;
			return Array.isArray(inner) && inner.length > 100 ? inner.slice(0, 100) : inner;
		});
	}

	function text(value) {
		if (typeof value === 'string') return value;
		if (typeof value !== 'object' || value === null || value instanceof Error) return String(value);
		try {
			return json(value) ?? String(value);
		} catch {
			return Object.prototype.toString.call(value);
		}
	}

	function stackOf(value) {
		const stack = value?.stack;
		return typeof stack === 'string' ? stack.slice(0, STACK_LEN) : undefined;
	}

	// Notes an event. What looking at the page's values causes is not noted in turn.
	function note(level, make) {
		if (busy || off || LEVELS.indexOf(level) < LOWEST) return;
		busy = true;
		try {
			if (waiting.length >= MOST_WAITING) {
				dropped += 1;
				return;
			}
			const event = make();
			event.level = level;
			event.msg = event.msg.slice(0, MSG_LEN);
			event.at = now();
			waiting.push(stringify(event));
			plan(PAUSE_MS);
		} catch {
			// The page goes on as if nobody had listened.
		} finally {
			busy = false;
		}
	}

	function plan(ms) {
		if (planned || off) return;
		planned = true;
		later(() => {
			planned = false;
			flush();
		}, ms);
	}

	// Takes what fits into one request out of those that wait.
	function take() {
		if (dropped > 0) {
			const msg = `${dropped} events were dropped: more was logged than is sent`;
			waiting.unshift(stringify({ name: 'dropped', level: 'warn', msg, at: now() }));
			dropped = 0;
		}
		const encoder = new TextEncoder();
		let bytes = 0;
		let count = 0;
		while (count < waiting.length && count < MOST_EVENTS) {
			bytes += encoder.encode(waiting[count]).length + 1;
			if (count > 0 && bytes > MOST_BYTES) break;
			count += 1;
		}
		return waiting.splice(0, count);
	}

	function body(events) {
		// Addresses may carry secrets behind the path.
		const head = { ...common, user, url: location.origin + location.pathname, sentAt: now() };
		return `${stringify(head).slice(0, -1)},"events":[${events.join(',')}]}`;
	}

	async function flush() {
		if (sending || off || waiting.length === 0 || !post) return;
		sending = true;
		const events = take();
		try {
			// Text is what pages may send elsewhere without asking first.
			const answer = await post(ENDPOINT, {
				method: 'POST',
				body: body(events),
				keepalive: true,
				credentials: 'omit',
				mode: 'cors',
			});
			if (answer.status === 429 || answer.status >= 500) throw answer;
			failed = 0;
			// A wrong key or origin stays wrong.
			off = [400, 401, 403, 404].includes(answer.status);
			if (off) waiting = [];
		} catch {
			failed += 1;
			if (failed % TRIES === 0) {
				dropped += events.length;
			} else {
				waiting = events.concat(waiting);
			}
		}
		sending = false;
		if (waiting.length > 0) plan(Math.min(PAUSE_MS * 2 ** failed, LONGEST_PAUSE_MS));
	}

	// The page may be gone any moment: what waits is given to the browser, which sends it by itself.
	function leave() {
		try {
			while (!off && beacon && waiting.length > 0) {
				const events = take();
				if (!beacon(ENDPOINT, body(events))) {
					waiting = events.concat(waiting);
					break;
				}
			}
		} catch {
			// Nothing is left to do.
		}
	}

	for (const [method, level] of [
		['debug', 'debug'],
		['log', 'info'],
		['info', 'info'],
		['warn', 'warn'],
		['error', 'error'],
	]) {
		const original = console[method];
		if (typeof original !== 'function') continue;
		console[method] = function (...values) {
			note(level, () => ({
				name: 'console',
				msg: values.map(text).join(' '),
				stack: stackOf(values.find((value) => value instanceof Error)),
			}));
			return original.apply(this, values);
		};
	}

	window.addEventListener('error', (event) => {
		note('error', () => ({
			name: 'error',
			msg: String(event.message),
			stack: stackOf(event.error) ?? `at ${event.filename}:${event.lineno}:${event.colno}`,
		}));
	});
	window.addEventListener('unhandledrejection', (event) => {
		note('error', () => ({
			name: 'rejection',
			msg: `Unhandled rejection: ${text(event.reason)}`,
			stack: stackOf(event.reason),
		}));
	});
	window.addEventListener('pagehide', leave);
	document.addEventListener('visibilitychange', () => {
		if (document.visibilityState === 'hidden') leave();
	});

	window.iceboxLogs = Object.freeze({
		// Logs an event of the page's own, with anything that JSON can hold.
		event(name, extra, level = 'info') {
			note(level, () => {
				const kept = extra === undefined ? undefined : json(extra);
				const fits = kept === undefined || kept.length <= EXTRA_LEN;
				return {
					name: String(name),
					msg: String(name),
					extra: kept && (fits ? JSON.parse(kept) : { cut: kept.slice(0, EXTRA_LEN) }),
				};
			});
		},
		// Says who uses the page from now on.
		user(id) {
			user = id === undefined || id === null ? undefined : String(id);
		},
	});
})();

// Asks the server. Owns how requests look, how errors are read, and what happens when the sign-in has ended.

/** An answer that is no success; `message` is the server's own sentence. */
export class ApiError extends Error {
	constructor(
		readonly status: number,
		readonly code: string,
		message: string,
		readonly more: Record<string, unknown> = {},
	) {
		super(message);
	}
}

let signedOut: () => void = () => {};

/** What to do once the server says that nobody is signed in. */
export function onSignedOut(then: () => void) {
	signedOut = then;
}

/** Sends a request; gives the answer if it is a good one. */
export async function send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
	const headers = new Headers(init.headers);
	if (method !== 'GET') headers.set('x-icebox-csrf', '1');
	let answer: Response;
	try {
		answer = await fetch(path, { ...init, method, headers, credentials: 'same-origin' });
	} catch (error) {
		if (init.signal?.aborted) throw error;
		throw new ApiError(0, 'unreachable', '');
	}
	if (answer.ok) return answer;
	const body = await answer.json().catch(() => ({}));
	const { error, code, ...more } = body as { error?: string; code?: string };
	if (answer.status === 401 && path !== '/v1/session') signedOut();
	throw new ApiError(answer.status, code ?? 'unknown', error ?? `HTTP ${answer.status}`, more);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
	return (await send('GET', path, { signal })).json();
}

export async function call<T>(method: string, path: string, body: unknown = {}): Promise<T> {
	const init = { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
	return (await send(method, path, init)).json();
}

/** The path of a box, or of something of it. */
export function boxPath(id: string, rest = ''): string {
	return `/v1/boxes/${encodeURIComponent(id)}${rest}`;
}

// Server-sent events, read by `fetch`: a browser's own reader cannot say which event is missing, nor hear kinds it was not
// told of.

export interface Sent {
	id: string;
	kind: string;
	data: string;
}

/** Reads events until the stream ends. `alive` is called for every piece, comments included. */
export async function readEvents(body: ReadableStream<Uint8Array>, each: (sent: Sent) => void, alive: () => void) {
	const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
	let rest = '';
	for (;;) {
		const { done, value } = await reader.read();
		if (done) return;
		alive();
		const blocks = (rest + value).split('\n\n');
		rest = blocks.pop() ?? '';
		for (const block of blocks) {
			const sent: Sent = { id: '', kind: 'message', data: '' };
			for (const line of block.split('\n')) {
				const at = line.indexOf(':');
				if (at <= 0) continue;
				const text = line.slice(at + 1).replace(/^ /, '');
				const field = line.slice(0, at);
				if (field === 'id') sent.id = text;
				else if (field === 'event') sent.kind = text;
				else if (field === 'data') sent.data += text;
			}
			if (sent.data) each(sent);
		}
	}
}

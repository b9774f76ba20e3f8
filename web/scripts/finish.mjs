// The last step of the build: checks what was built, and packs it for the server to hand out as it is.
//
// The page may not grow past LIMIT_KB of packed bytes without its terminal, and nothing in it may be inline: the
// server's policy would refuse it.

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const LIMIT_KB = 200;
const dist = new URL('../dist/', import.meta.url).pathname;

const page = readFileSync(join(dist, 'index.html'), 'utf8');
if (/<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=/i.test(page)) {
	throw new Error('dist/index.html has something inline, which the policy of the page refuses');
}

let sum = 0;
let terminal = 0;
for (const name of readdirSync(dist, { recursive: true }).map(String)) {
	if (!/\.(html|js|css|svg)$/.test(name)) continue;
	const bytes = readFileSync(join(dist, name));
	const brotli = brotliCompressSync(bytes, {
		params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
	});
	const gzip = gzipSync(bytes, { level: 9 });
	// Packed in the way that takes more room, for not every browser is told of the other one.
	if (/(^|\/)[Tt]erminal-/.test(name)) terminal += gzip.length;
	else sum += gzip.length;
	if (brotli.length < bytes.length) writeFileSync(join(dist, `${name}.br`), brotli);
	if (gzip.length < bytes.length) writeFileSync(join(dist, `${name}.gz`), gzip);
}
const kb = (bytes) => (bytes / 1024).toFixed(1);
console.log(`the page: ${kb(sum)} KB packed, at most ${LIMIT_KB}; the terminal: ${kb(terminal)} KB more`);
if (sum > LIMIT_KB * 1024) {
	throw new Error(`the page is ${kb(sum)} KB packed, more than ${LIMIT_KB}`);
}

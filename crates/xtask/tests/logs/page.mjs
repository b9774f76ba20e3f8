// Drives a real Chromium for tests/logs.rs. Owns the browser; what should happen is the test's.
//
// Usage: node page.mjs PLAYWRIGHT-FOLDER CHROMIUM
//
// Reads one JSON object a line and answers with one: {"ok": what was asked for} or {"error": why not}.
//   {"open": URL}    loads a page, in place of the one before
//   {"run": SCRIPT}  runs it in the page and gives what it comes to
//   {"complaints": 1}  what the browser said of errors that are not the page's own

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [folder, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/`)('playwright-core');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const page = await browser.newPage();
page.setDefaultTimeout(30_000);

const complaints = [];
page.on('console', (message) => {
	const text = message.text();
	if (/Content Security Policy|CORS|ERR_/.test(text)) complaints.push(text);
});

const deeds = {
	open: async (url) => (await page.goto(url))?.status() ?? null,
	run: async (script) => (await page.evaluate(script)) ?? null,
	complaints: async () => complaints,
};

try {
	for await (const line of createInterface({ input: process.stdin })) {
		const [[deed, what]] = Object.entries(JSON.parse(line));
		try {
			console.log(JSON.stringify({ ok: await deeds[deed](what) }));
		} catch (error) {
			console.log(JSON.stringify({ error: String(error) }));
		}
	}
} finally {
	await browser.close();
}

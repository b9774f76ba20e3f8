// Drives a real Chromium for tests/edge.rs. Owns the browser; what should happen is the test's.
//
// Usage: node browser.mjs PLAYWRIGHT-FOLDER CHROMIUM URL
//
// Opens the URL and writes one line of JSON for each line that it reads, until there are no more:
//   look    {"status": of the first answer, "title", "app": the text of #app or null, "polls": what the page counted}
//   app     the same, once #app is there

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [folder, executablePath, url] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/`)('playwright-core');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
try {
	const page = await browser.newPage();
	const began = performance.now();
	let first;
	page.on('response', (response) => {
		if (response.request().isNavigationRequest()) first ??= response.status();
	});
	const loads = [];
	page.on('load', () => loads.push(Math.round(performance.now() - began)));
	await page.goto(url);
	for await (const line of createInterface({ input: process.stdin })) {
		if (line === 'app') await page.waitForSelector('#app', { timeout: 60_000 });
		const ms = Math.round(performance.now() - began);
		const seen = await page.evaluate(() => ({
			title: document.title,
			app: document.querySelector('#app')?.textContent ?? null,
			polls: globalThis.polls ?? null,
		}));
		console.log(JSON.stringify({ status: first, ms, loads, ...seen }));
	}
} finally {
	await browser.close();
}

// Drives a real Chromium for tests and benchmarks, as a person would: by what is written on buttons and links. Owns the
// browser; what should happen is told by whoever asks.
//
// Usage: node browser.mjs PLAYWRIGHT-FOLDER CHROMIUM URL LOCALE
//
// Reads one JSON object a line and answers with one: {"ok": what was asked for} or {"error": why not}.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [folder, executablePath, baseURL, locale] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/`)('playwright-core');
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const context = await browser.newContext({ locale, baseURL });
context.setDefaultTimeout(30_000);
const page = await context.newPage();

/** What the browser complained about: errors of scripts, and whatever the page's policy refused. */
const complaints = [];
page.on('pageerror', (error) => complaints.push(String(error)));
page.on('console', (message) => {
	const text = message.text();
	if (message.type() === 'error' && !text.startsWith('Failed to load resource')) complaints.push(text);
});

/** The answers to navigations, and when pages were loaded, in milliseconds since the last visit began. */
let visit = { began: 0, statuses: [], loads: [] };
const sinceVisit = () => Math.round(performance.now() - visit.began);
page.on('response', (response) => {
	if (response.request().isNavigationRequest()) visit.statuses.push(response.status());
});
page.on('load', () => visit.loads.push(sinceVisit()));

const within = (selector) => (selector ? page.locator(selector) : page);
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

const deeds = {
	goto: async ({ path }) => void (await page.goto(path)),
	/** Goes there and waits until something is visible, whatever comes in between. */
	visit: async ({ path, until }) => {
		visit = { began: performance.now(), statuses: [], loads: [] };
		await page.goto(path, { waitUntil: 'commit' });
		await page.locator(until).first().waitFor();
		return { ms: sinceVisit(), statuses: visit.statuses, loads: visit.loads };
	},
	click: async ({ role = 'button', name, in: place }) => {
		await within(place).getByRole(role, { name, exact: true }).first().click();
	},
	fill: async ({ label, text }) => page.getByLabel(label, { exact: true }).fill(text),
	press: async ({ key }) => page.keyboard.press(key),
	type: async ({ text }) => page.keyboard.type(text),
	see: async ({ text, in: place }) => {
		await within(place).getByText(text).filter({ visible: true }).first().waitFor();
	},
	gone: async ({ text, in: place }) => {
		await within(place).getByText(text).filter({ visible: true }).first().waitFor({ state: 'hidden' });
	},
	find: async ({ selector }) => page.locator(selector).first().waitFor(),
	read: async ({ selector }) => page.locator(selector).first().innerText(),
	count: async ({ selector }) => page.locator(selector).count(),
	evaluate: async ({ script }) => page.evaluate(script),
	upload: async ({ name, text }) => {
		const file = { name, mimeType: 'text/plain', buffer: Buffer.from(text) };
		await page.locator('input[type=file]').setInputFiles(file);
	},
	download: async ({ selector }) => {
		const [download] = await Promise.all([page.waitForEvent('download'), page.locator(selector).click()]);
		return readFileSync(await download.path(), 'utf8');
	},
	axe: async ({ source }) => {
		await page.evaluate(readFileSync(source, 'utf8'));
		const found = await page.evaluate((values) => globalThis.axe.run(document, { runOnly: { type: 'tag', values } }), TAGS);
		return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`);
	},
	/** Opens a page for each path, as so many readers who are signed in alike. */
	crowd: async ({ paths }) => {
		const storageState = await context.storageState();
		for (const path of paths) {
			const other = await browser.newContext({ locale, baseURL, storageState });
			await (await other.newPage()).goto(path);
		}
	},
	/** What is still in use of the page's memory, in bytes. */
	heap: async () => {
		const devtools = await context.newCDPSession(page);
		try {
			await devtools.send('HeapProfiler.collectGarbage');
			return (await devtools.send('Runtime.getHeapUsage')).usedSize;
		} finally {
			await devtools.detach();
		}
	},
	screenshot: async ({ path, width, height, scheme, full = false }) => {
		await page.setViewportSize({ width, height });
		await page.emulateMedia({ colorScheme: scheme });
		await page.screenshot({ path, fullPage: full });
	},
	address: async () => page.url(),
	cookies: async () => context.cookies(),
	stored: async () => page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage })),
	complaints: async () => complaints,
};

try {
	for await (const line of createInterface({ input: process.stdin })) {
		const { do: deed, ...rest } = JSON.parse(line);
		let answer;
		try {
			answer = { ok: (await deeds[deed](rest)) ?? null };
		} catch (error) {
			const shown = await page.locator('body').innerText().catch(() => '');
			answer = { error: `${error}\n--- the page shows:\n${shown}\n--- it complains: ${complaints.join('\n')}` };
		}
		console.log(JSON.stringify(answer));
	}
} finally {
	await browser.close();
}

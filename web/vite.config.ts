// How the dashboard is built, and served while it is worked on (`npm run dev`, with a server on ICEBOX_URL).
import { defineConfig } from 'vite';

const server = process.env.ICEBOX_URL ?? 'http://127.0.0.1:7070';

export default defineConfig({
	base: '/app/',
	build: {
		target: 'es2022',
		// Everything is a file of its own: the page's policy allows nothing inline.
		assetsInlineLimit: 0,
		modulePreload: { polyfill: false },
		cssCodeSplit: true,
	},
	oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
	server: {
		proxy: {
			'/v1': { target: server, changeOrigin: true },
		},
	},
});

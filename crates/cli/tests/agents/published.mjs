// The published adapter `parallelsandbox-mcp`, unchanged, with its two addresses pointing here.
// Called with the address of the server, its key and a git project.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const from = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(from.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

const [, , url, key, project] = process.argv;
const client = new Client({ name: "test", version: "1" });
await client.connect(
  new StdioClientTransport({
    command: process.execPath,
    args: ["node_modules/parallelsandbox-mcp/index.mjs"],
    env: {
      PATH: process.env.PATH,
      PARALLELSANDBOX_API_KEY: key,
      PARALLELSANDBOX_MCP_URL: `${url}/mcp`,
      PARALLELSANDBOX_API_URL: url,
    },
  }),
);

async function call(name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result));
  return JSON.parse(result.content[0].text);
}

const names = (await client.listTools()).tools.map((tool) => tool.name);
assert.ok(names.includes("sandbox_sync") && names.includes("sandbox_pull"), names.join());
const box = (await call("sandbox_start", { goal: "the published adapter" })).id;
const first = await call("sandbox_sync", { id: box, localPath: project, dest: "app" });
assert.equal(first.sentFiles, 4, JSON.stringify(first));
const second = await call("sandbox_sync", { id: box, localPath: project, dest: "app" });
assert.equal(second.sentFiles, 0, JSON.stringify(second));
const done = await call("sandbox_exec", { id: box, cmd: "cd app && sh build.sh && cat out/result", note: "build" });
assert.equal(done.stdout, "built from one\n");
const pulled = `${project}-published`;
await call("sandbox_pull", { id: box, path: "app/out", localPath: pulled });
const { readFileSync } = await import("node:fs");
assert.equal(readFileSync(`${pulled}/out/result`, "utf8"), "built from one\n");
const wired = await call("sandbox_wire", { id: box, service: "files", port: 80, targetPort: 8081 });
assert.equal(wired.services[0].targetPort, 8081, JSON.stringify(wired));
const serve = "cd app/out && exec python3 -m http.server 8081 --bind 127.0.0.1";
await call("sandbox_exec", { id: box, cmd: serve, note: "serve", background: true, readyPort: 8081 });
const named = await call("sandbox_exec", { id: box, cmd: "curl -sS http://files/result", note: "by its name" });
assert.equal(named.stdout, "built from one\n", JSON.stringify(named));
const scene = await call("sandbox_scene", { id: box, url: "http://files/result" });
assert.match(scene.sceneUrl, /^http:\/\/files-.*\/result$/);
const { steps } = await call("sandbox_status", { id: box, fields: ["steps"] });
assert.ok(!steps.some((step) => step.summary.includes("psbx-sync")), JSON.stringify(steps));
await call("sandbox_stop", { id: box });
await client.close();
console.log("all of it works");

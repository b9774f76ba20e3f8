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

const worked = new Set(["parallelsandbox_connect"]);
async function call(name, args) {
  const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 300000 });
  assert.ok(!result.isError, JSON.stringify(result));
  worked.add(name);
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

// A message of a person comes once, also to a client that knows nothing of confirming.
const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
const message = { method: "POST", headers, body: JSON.stringify({ text: "well done" }) };
assert.equal((await fetch(`${url}/v1/boxes/${box}/messages`, message)).status, 201);
const told = await call("sandbox_exec", { id: box, cmd: "true", note: "go on" });
assert.deepEqual(told.fromHuman.map((one) => one.text), ["well done"]);
assert.equal((await call("sandbox_exec", { id: box, cmd: "true", note: "go on" })).fromHuman, undefined);

// Every other tool that the server lists goes through it.
const begun = await call("sandbox_exec", { id: box, cmd: "sleep 1000", note: "wait", background: true });
assert.equal((await call("sandbox_procs", { id: box })).procs[0].bgId, begun.bgId);
assert.equal((await call("sandbox_procs", { id: box, action: "stop", bgId: begun.bgId })).running, false);
const built = { id: box, dir: "app", cmd: "sh build.sh", out: ["out"], note: "build" };
assert.equal((await call("sandbox_build", built)).reused, false);
assert.ok((await call("sandbox_get", { id: box, path: "app/out/result" })).url.startsWith(url));
assert.deepEqual((await call("sandbox_secrets", {})).secrets, []);
// This version of it tells no conversations apart.
assert.equal((await call("sandbox_list", {})).boxes[0].agent.untracked, true);
await call("sandbox_say", { id: box, text: "It works." });
assert.equal((await call("sandbox_freeze", { id: box })).status, "frozen");
assert.equal((await call("sandbox_wake", { id: box })).status, "ready");
const { forks } = await call("sandbox_fork", { id: box });
await call("sandbox_stop", { id: forks[0].box.id });
await call("sandbox_publish_version", { service: "api", label: "v1", image: "registry.localhost/api:1" });
assert.equal((await call("sandbox_versions", { service: "api" })).versions.length, 1);
assert.deepEqual((await call("sandbox_environments", {})).environments, []);
await call("sandbox_feedback", { task: "a test", usage: "all", problems: "none", suggestions: "none" });
// What an app logs is found in all three ways.
const post = async (path, bearer, body) => {
  const headers = { Authorization: `Bearer ${bearer}`, "Content-Type": "application/json" };
  const answer = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
};
const { project: shop, writeKey } = await post("/v1/projects", key, { name: "published" });
await post("/v1/logs", writeKey, { events: [{ msg: "no stock", level: "error" }] });
for (const [tool, more] of [["logs_search", { query: "stock" }], ["logs_errors", {}]]) {
  const { rows } = await call(tool, { project: shop.id, ...more });
  assert.deepEqual(rows.map((row) => row.msg), ["no stock"], tool);
}
assert.ok((await call("logs_tail", { project: shop.id, waitSec: 0 })).cursor);
await call("sandbox_stop", { id: box });
assert.deepEqual(names.filter((name) => !worked.has(name)), []);
await client.close();
console.log("all of it works");

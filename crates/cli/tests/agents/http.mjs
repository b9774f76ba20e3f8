// The official TypeScript SDK against `/mcp` itself: what a client that needs no local disk sees, signs of life among it.
// Called with the address of the server and its key; the packages are found beside the working directory.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const from = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(from.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const [, , url, key] = process.argv;
const client = new Client({ name: "test", version: "1" });
const headers = { Authorization: `Bearer ${key}`, "X-Psbx-Agent": "typescript" };
await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } }));

// A box may take a while on a busy machine; what is tested here is not how long.
const worked = new Set();
async function call(name, args, fails = false, options = { timeout: 300000 }) {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  assert.equal(Boolean(result.isError), fails, JSON.stringify(result));
  if (fails) return result.content[0].text;
  worked.add(name);
  const fields = JSON.parse(result.content[0].text);
  assert.deepEqual(fields, result.structuredContent);
  return fields;
}

const { tools } = await client.listTools();
for (const tool of tools) {
  assert.equal(tool.inputSchema.type, "object", tool.name);
  // Every tool says what is wrong with arguments that make no sense, and none of them does anything.
  if (!tool.inputSchema.required) continue;
  for (const args of [{}, { id: 1 }, { id: "../../etc" }, { id: "x".repeat(100000) }, { nosuch: true }]) {
    const text = await call(tool.name, args, true);
    assert.ok(text.length > 10 && text.length < 100500, `${tool.name}: ${text}`);
  }
}
assert.deepEqual((await call("sandbox_list", { all: true })).boxes, []);

const box = (await call("sandbox_start", { goal: "signs of life" })).id;
const signs = [];
const onprogress = (sign) => signs.push(sign);
const slow = { id: box, cmd: "sleep 22; echo done", note: "take longer than a client's patience" };
const done = await call("sandbox_exec", slow, false, { onprogress, timeout: 21000, resetTimeoutOnProgress: true });
assert.equal(done.stdout, "done\n");
assert.ok(signs.length >= 1, "a long call gives signs of life");

// A client that gives up ends its wait and nothing else.
const abort = new AbortController();
const waiting = call("sandbox_exec", { id: box, cmd: "sleep 1000", note: "wait" }, false, { signal: abort.signal });
let procs = [];
while (procs.length === 0) procs = (await call("sandbox_procs", { id: box })).procs;
abort.abort();
await assert.rejects(waiting);
procs = (await call("sandbox_procs", { id: box })).procs;
assert.equal(procs[0].running, true);
await call("sandbox_procs", { id: box, action: "stop", bgId: procs[0].bgId, graceSec: 0 });

await call("sandbox_exec", { id: box, cmd: "mkdir a && echo hello > a/b", note: "make a file" });
const { files } = await call("sandbox_get", { id: box, paths: ["a/b", "a", "nosuch", "../../etc/passwd"] });
assert.equal(await (await fetch(files[0].url)).text(), "hello\n");
assert.equal(files[0].bytes, 6);
assert.equal(files[1].archive, true);
assert.equal((await fetch(files[1].url)).headers.get("content-type"), "application/gzip");
assert.ok(files[2].error && files[3].error, JSON.stringify(files));
assert.equal((await fetch(`${url}/v1/downloads/${"0".repeat(40)}`)).status, 400);
// A small image is in the result, too; what only calls itself one is not.
const pixel = "R0lGODlhAQABAAAAACwAAAAAAQABAAAC";
const paint = `echo ${pixel} | base64 -d > a/dot.gif; echo text > a/not.png`;
await call("sandbox_exec", { id: box, cmd: paint, note: "make an image" });
const get = { id: box, paths: ["a/dot.gif", "a/not.png"] };
const seen = await client.callTool({ name: "sandbox_get", arguments: get });
assert.equal(seen.content.filter((item) => item.type === "image").length, 1);
const image = seen.content.at(-1);
assert.deepEqual([image.mimeType, image.data], ["image/gif", pixel]);
assert.equal(seen.content.at(-2).text, "image a/dot.gif:");

// Every tool works over the SDK, but for the two that need the caller's disk.
const build = { id: box, dir: "a", cmd: "cp b c", out: ["c"], note: "build" };
assert.equal((await call("sandbox_build", build)).cached, true);
assert.deepEqual((await call("sandbox_secrets", {})).secrets, []);
const { steps } = await call("sandbox_status", { id: box, fields: ["steps"] });
assert.equal(steps.at(-1).kind, "build");
await call("sandbox_say", { id: box, text: "Half of it works." });
assert.equal((await call("sandbox_freeze", { id: box })).status, "frozen");
assert.equal((await call("sandbox_wake", { id: box })).status, "ready");
const { forks } = await call("sandbox_fork", { id: box });
const other = forks[0].box.id;
const there = await call("sandbox_exec", { id: other, cmd: "cat a/c", note: "look" });
assert.equal(there.stdout, "hello\n");
await call("sandbox_stop", { id: other });
const version = { service: "api", label: "v1", image: "registry.localhost/api:1" };
await call("sandbox_publish_version", version);
assert.equal((await call("sandbox_versions", {})).versions[0].label, "v1");
const serve = { cmd: "python3 -m http.server 3000 -d a", note: "serve", background: true, readyPort: 3000 };
const server = await call("sandbox_exec", { id: box, ...serve });
await call("sandbox_publish_version", { service: "api", label: "v2", fromBox: box });
await call("sandbox_procs", { id: box, action: "stop", bgId: server.bgId });
const run = await call("sandbox_wire", { id: box, service: "api", port: 3000, version: "v2" });
assert.equal(run.services.at(-1).version, "v2", JSON.stringify(run));
const served = await call("sandbox_exec", { id: box, cmd: "curl -sS api:3000/c", note: "ask the version" });
assert.equal(served.stdout, "hello\n");
await call("sandbox_wire", { id: box, service: "api", mode: "box" });
assert.deepEqual((await call("sandbox_environments", {})).environments, []);
await call("sandbox_feedback", { task: "a test", usage: "all", problems: "none", suggestions: "none" });
const wired = await call("sandbox_wire", { id: box, service: "files", port: 80, targetPort: 8081 });
assert.ok(wired.services.some((service) => service.targetPort === 8081), JSON.stringify(wired));
const scene = await call("sandbox_scene", { id: box, url: "http://files/result" });
assert.match(scene.sceneUrl, /^http:\/\/files-.*\/result$/);
// What an app logs is found in all three ways.
const post = async (path, bearer, body) => {
  const headers = { Authorization: `Bearer ${bearer}`, "Content-Type": "application/json" };
  const answer = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
};
const { project: shop, writeKey } = await post("/v1/projects", key, { name: "http" });
await post("/v1/logs", writeKey, { events: [{ msg: "no stock", level: "error" }] });
for (const [tool, more] of [["logs_search", { query: "stock" }], ["logs_errors", {}]]) {
  const { rows } = await call(tool, { project: shop.id, ...more });
  assert.deepEqual(rows.map((row) => row.msg), ["no stock"], tool);
}
assert.ok((await call("logs_tail", { project: shop.id, waitSec: 0 })).cursor);
await call("sandbox_stop", { id: box });
const local = ["sandbox_sync", "sandbox_pull"];
assert.deepEqual(tools.map((tool) => tool.name).filter((name) => !worked.has(name)), local);
await client.close();
console.log("all of it works");

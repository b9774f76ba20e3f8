"""Calls everything that /openapi.json describes, on a real server with a real box. The document has to be valid OpenAPI 3.1
for a published validator, each request and answer has to be as it says, and no call may be left out."""

import http.client
import io
import json
import os
import tarfile
import urllib.parse

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

URL = urllib.parse.urlsplit(os.environ["ICEBOX_URL"])
KEY = os.environ["ICEBOX_API_KEY"]
JSON = "application/json"


def send(method, path, body, headers):
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=120)
    connection.request(method, path, body=body, headers=headers)
    response = connection.getresponse()
    # A connection that goes on as another protocol has no end.
    body = b"" if response.status == 101 else response.read()
    connection.close()
    return response, body


def load():
    response, body = send("GET", "/openapi.json", None, {})
    assert response.status == 200, response.status
    return json.loads(body)


DOCUMENT = load()
called = set()


def validate(at, schema, value):
    whole = {"allOf": [schema], "components": DOCUMENT["components"]}
    checker = Draft202012Validator.FORMAT_CHECKER
    errors = list(Draft202012Validator(whole, format_checker=checker).iter_errors(value))
    assert not errors, f"{at}: {[(list(e.absolute_path), e.message) for e in errors]}\n{json.dumps(value, indent=1)}"


def call(method, template, *places, query="", body=None, media=JSON, headers=(), key=KEY, status=200):
    """Makes a call that has to succeed with this status, and gives what it answered."""
    described = DOCUMENT["paths"][template][method.lower()]
    path = template
    for place in places:
        name = path[path.index("{") : path.index("}") + 1]
        path = path.replace(name, urllib.parse.quote(place, safe=""), 1)
    assert "{" not in path, path
    at = f"{method} {template}"
    sent = dict(headers)
    if key:
        sent["Authorization"] = f"Bearer {key}"
    if body is not None:
        takes = described["requestBody"]["content"]
        if media == JSON:
            validate(at, takes[JSON]["schema"], body)
            body = json.dumps(body).encode()
        assert media.split(";")[0] in takes, f"{at} does not take {media}"
        sent["Content-Type"] = media
    else:
        assert not described.get("requestBody", {}).get("required"), at
    response, answer = send(method, path + (f"?{query}" if query else ""), body, sent)
    assert response.status == status, f"{at}: {response.status} {answer[:500]}"
    content = described["responses"][str(status)].get("content")
    called.add((method.lower(), template))
    if content is None:
        assert not answer, f"{at}: {answer[:200]}"
        return response
    kind = response.headers["Content-Type"].split(";")[0]
    assert kind in content, f"{at} answered {kind}"
    schema = content[kind].get("schema")
    if kind == JSON:
        answer = json.loads(answer)
        if schema:
            validate(at, schema, answer)
        return answer
    if kind == "application/x-ndjson":
        answer = [json.loads(line) for line in answer.splitlines()]
        for line in answer:
            validate(at, schema["contentSchema"], line)
    return answer


def general():
    for path in ["/healthz", "/readyz", "/openapi.json"]:
        call("GET", path, key=None)
    assert b"icebox_boxes" in call("GET", "/metrics")
    call("GET", "/v1/host")
    call("POST", "/v1/agents/{id}/heartbeat", "one", body={})
    call("POST", "/v1/agents/{id}/leave", "one")
    call("GET", "/v1/test/clock")
    call("POST", "/v1/test/clock", body={"advanceSec": 1})


def environments():
    at = "/v1/environments"
    call("POST", at, body={"name": "staging"}, status=201)
    call("PUT", at + "/{name}/services/{service}", "staging", "db", body=b"DB_USER=me\n", media="text/plain")
    made = {"name": "office", "endpoints": [f"web={URL.hostname}:{URL.port}"]}
    made = call("POST", at + "/{name}/connections", "staging", body=made, status=201)
    endpoints = {"endpoints": [f"api={URL.hostname}:{URL.port}"]}
    call("PUT", at + "/{name}/connections/{id}/endpoints", "staging", made["id"], body=endpoints)
    listed = call("GET", at)["environments"]
    assert listed[0]["connections"], listed
    call("DELETE", at + "/{name}/connections/{id}", "staging", made["id"])
    call("DELETE", at + "/{name}/services/{service}", "staging", "db")
    call("DELETE", at + "/{name}", "staging")


def start():
    services = [{"name": "web", "port": 8080, "web": True}]
    request = {"name": "all", "goal": "is called", "services": services, "env": {"A": "1"}, "metadata": {"a": "b"}}
    return call("POST", "/v1/boxes", body=request, status=201)["id"]


def commands(box):
    at = "/v1/boxes/{id}"
    done = call("POST", at + "/exec", box, body={"cmd": "echo hello; exit 3", "note": "to see"})
    assert (done["exitCode"], done["stdout"]) == (3, "hello\n"), done
    server = {"cmd": "python3 -m http.server 8080", "background": True, "readyPort": 8080}
    bg = call("POST", at + "/exec", box, body=server)["bgId"]
    call("GET", at + "/procs", box)
    call("GET", at + "/procs", box, query="look=1")
    call("GET", at + "/procs/{exec}", box, bg)
    waited = call("GET", at + "/procs/{exec}", box, bg, query="until=ready&readyPort=8080&waitSec=5")
    assert waited["ready"] is True, waited
    call("GET", at + "/procs/{exec}/output", box, bg, query="stream=stderr&offset=0")
    status = call("GET", at, box)
    assert status["running"]["commands"] and status["disk"] and status["health"], status
    some = call("GET", at, box, query="fields=freeze,nothing")
    assert some["freeze"]["blockedBy"] and some["unknownFields"] == ["nothing"], some
    call("POST", at + "/procs/{exec}/stop", box, bg, query="graceSec=1")
    build = {"dir": "built", "cmd": "echo out > out.txt", "out": ["out.txt"]}
    call("POST", at + "/exec", box, body={"cmd": "mkdir built"})
    assert call("POST", at + "/build", box, body=build)["cached"]
    assert call("POST", at + "/build", box, body=build)["reused"]


def files(box):
    at = "/v1/boxes/{id}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    sent = call("POST", at + "/sync", box, query="dest=app", body=archive.getvalue(), media="application/gzip")
    assert sent["changed"] == 1, sent
    written = {"query": "path=app/b.txt", "body": b"b", "media": "application/octet-stream"}
    call("PUT", at + "/files", box, **written)
    assert call("GET", at + "/files", box, query="path=app/b.txt") == b"b"
    assert call("GET", at + "/files", box, query="path=app")[:2] == b"\x1f\x8b"
    assert len(call("GET", at + "/files", box, query="path=app&list=1")["entries"]) == 2
    tool = {"name": "sandbox_get", "arguments": {"id": box, "path": "app/a.txt"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": JSON, "Accept": f"{JSON}, text/event-stream"}
    _, got = send("POST", "/mcp", json.dumps(asked), headers)
    url = json.loads(got)["result"]["structuredContent"]["url"]
    assert call("GET", "/v1/downloads/{token}", url.rsplit("/", 1)[1], key=None) == b"abc"
    socket = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    call("GET", at + "/terminal", box, query="cols=80&rows=24", headers=socket, status=101)


def kept(box):
    at = "/v1/boxes/{id}"
    call("PUT", "/v1/secrets/{name}", "TOKEN", body={"value": "s"})
    assert call("GET", "/v1/secrets")["secrets"]
    call("POST", at + "/secrets", box, body={"names": ["TOKEN"]})
    call("DELETE", "/v1/secrets/{name}", "TOKEN")
    call("POST", at + "/say", box, body={"text": "hello"})
    left = call("POST", at + "/messages", box, body={"text": "hello"}, status=201)
    assert call("GET", at + "/messages", box)["messages"]
    call("POST", at + "/messages/received", box, body={"ids": [left["id"]]})
    words = {"task": "t", "usage": "u", "problems": "p", "suggestions": "s", "id": box}
    call("POST", "/v1/feedback", body=words)
    assert call("GET", "/v1/feedback")["feedback"]
    version = {"service": "api", "label": "v1", "image": "registry/api:1", "note": "n", "gitSha": "abcdef0"}
    call("POST", "/v1/versions", body=version, status=201)
    assert call("GET", "/v1/versions", query="service=api")["versions"]


def wiring(box):
    at = "/v1/boxes/{id}"
    other = call("POST", "/v1/boxes", body={"name": "data"}, status=201)["id"]
    wired = call("POST", at + "/wire", box, body={"service": "db", "port": 5432, "fromBox": other})
    assert wired["links"], wired
    version = {"service": "web", "label": "v1", "image": "host", "cmd": "exec python3 -m http.server 8000"}
    call("POST", "/v1/versions", body=version, status=201)
    wire = {"service": "web", "port": 8000, "version": "v1", "env": {"A": "1"}}
    wired = call("POST", at + "/wire", box, body=wire)
    assert wired["services"][0]["version"] == "v1", wired
    call("POST", at + "/wire", box, body={"service": "web", "port": 8080, "mode": "box"})
    assert call("GET", at, other)["linkedFrom"]
    call("POST", at + "/scene", box, body={"service": "web"})
    call("POST", at + "/link", box, body={"service": "web", "ttlSec": 60})
    call("DELETE", at + "/link", box)
    call("DELETE", at, other)


def logs():
    at = "/v1/projects"
    made = call("POST", at, body={"name": "shop", "origins": ["https://shop.example"]}, status=201)
    project = made["project"]["id"]
    event = {"msg": "broken", "level": "error", "stack": "Error: broken\n at a.js:1:1", "extra": {"a": [1]}}
    batch = {"events": [event], "release": "1"}
    call("POST", "/v1/logs", body=batch, key=made["writeKey"])
    asks = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    call("OPTIONS", "/v1/logs", headers=asks, query=f"key={made['writeKey']}", key=None, status=204)
    call("GET", at)
    call("GET", at + "/{project}", project)
    assert call("GET", at + "/{project}/logs", project, query="query=broken&since=1h&limit=5")["rows"]
    assert call("GET", at + "/{project}/logs/errors", "shop")["rows"]
    call("GET", at + "/{project}/logs/tail", project, query="waitSec=0")
    source = json.dumps({"version": 3, "sources": ["a.ts"], "names": [], "mappings": "AAAA"})
    parts = [("release", "", "1"), ("/a.js", '; filename="a.js.map"', source)]
    form = "".join(f'--cut\r\nContent-Disposition: form-data; name="{n}"{more}\r\n\r\n{text}\r\n' for n, more, text in parts)
    media = "multipart/form-data; boundary=cut"
    call("POST", at + "/{project}/sourcemaps", project, body=(form + "--cut--\r\n").encode(), media=media)
    call("POST", at + "/{project}/rotate", project)
    call("DELETE", at + "/{project}", project)


def webhooks(box):
    at = "/v1/webhooks"
    hook = {"url": f"http://{URL.hostname}:{URL.port}/nowhere", "kinds": ["frozen"], "box": box}
    hook = call("POST", at, body=hook, status=201)["id"]
    call("GET", at)
    call("GET", at + "/{id}", hook)
    call("PATCH", at + "/{id}", hook, body={"kinds": [], "box": None})
    call("POST", at + "/{id}/test", hook)
    return hook


def accounts():
    at = "/v1/accounts"
    call("GET", "/v1/account")
    call("POST", at, body={"name": "team", "credits": 5}, status=201)
    call("GET", at)
    call("GET", at + "/{name}", "team")
    call("POST", at + "/{name}/credits", "team", body={"add": 1.5})
    key = call("POST", at + "/{name}/keys", "team", status=201)
    call("GET", at + "/{name}/keys", "team")
    call("POST", at + "/{name}/keys/revoke", "team", body={"id": key["id"]})
    call("POST", "/v1/session/links")
    _, _ = send("POST", "/v1/session", json.dumps({"key": KEY}), {})
    signed_in, _ = send("POST", "/v1/session", json.dumps({"key": KEY}), {})
    call("POST", "/v1/session", body={"key": KEY}, key=None)
    cookie = {"Cookie": signed_in.headers["Set-Cookie"].split(";")[0]}
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert cookie["Cookie"].split("=")[0] == schemes["session"]["name"], cookie
    call("GET", "/v1/session", headers=cookie, key=None)
    call("DELETE", "/v1/session", headers={**cookie, "X-Icebox-CSRF": "1"}, key=None)


def lives(box):
    at = "/v1/boxes/{id}"
    call("PATCH", at, box, body={"idleTimeoutMin": 60, "policy": {"freezeAfterSec": None}, "keep": True})
    snapshot = call("POST", at + "/snapshots", box, body={"name": "kept"}, status=201)["id"]
    call("GET", "/v1/snapshots")
    call("GET", "/v1/snapshots/{id}", "kept")
    forks = call("POST", at + "/fork", box, body={"count": 1, "name": "fork"}, status=201)["forks"]
    call("DELETE", "/v1/snapshots/{id}", snapshot)
    frozen = call("POST", at + "/freeze", box)
    assert (frozen["status"], frozen["tier"]) == ("frozen", "disk"), frozen
    listed = call("GET", "/v1/boxes", query="all=1&limit=10")
    assert len(listed["boxes"]) == 4, listed
    call("GET", "/v1/boxes", query="limit=1")
    call("POST", at + "/wake", box, body={"waitForCapacitySec": 5})
    call("POST", at + "/renew", box)
    call("POST", at + "/stop", forks[0]["box"]["id"])
    call("DELETE", at, box)
    events = call("GET", "/v1/events", query="since=0")
    assert {event["kind"] for event in events} >= {"ready", "frozen", "terminated"}, events
    call("GET", "/v1/events", query="limit=1", headers={"Accept": "text/event-stream"})


def main():
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    general()
    environments()
    box = start()
    hook = webhooks(box)
    commands(box)
    files(box)
    kept(box)
    wiring(box)
    logs()
    accounts()
    lives(box)
    call("GET", "/v1/webhooks/{id}/deliveries", hook, query="limit=5")
    call("DELETE", "/v1/webhooks/{id}", hook)
    described = {(m, path) for path, methods in DOCUMENT["paths"].items() for m in methods}
    assert described == called, f"never called: {sorted(described - called)}"
    print(f"{len(called)} calls are as described")


main()

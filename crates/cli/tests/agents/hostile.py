"""Arguments that no client should send, to every tool, and files that no client should send, into a real box: each gets a
clear answer, none of them is the server's fault, and nothing is half-done.

Called with the program, the server's address and its key, and a folder for files."""

import gzip
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request

PROGRAM, URL, KEY, FOLDER = sys.argv[1:5]
HUGE = "x" * 1_000_000
TEXTS = ["", " ", "../../etc/passwd", "/etc/passwd", "~root", "-rf", "a\0b", "a\nb", "\u202egnp.exe", "'; exit 9; '", "$(exit 9)", "%2e%2e/", HUGE]
OTHERS = [None, True, -1, 0, 1.5, 2**63, 1e300, [], ["x"] * 1000, [[]], {}, {"x": {"x": {}}}]


def request(path, method="GET", body=None, headers=()):
    headers = {"Authorization": f"Bearer {KEY}", **dict(headers)}
    call = urllib.request.Request(URL + path, method=method, data=body, headers=headers)
    try:
        with urllib.request.urlopen(call) as answer:
            text = answer.read() or b"null"
            # A call that takes long answers as an event stream, of which the last event is the result.
            if answer.headers["Content-Type"].startswith("text/event-stream"):
                text = [line for line in text.split(b"\n") if line.startswith(b"data:")][-1][5:]
            return answer.status, json.loads(text)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def ask(method, params):
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    status, answer = request("/mcp", "POST", body, headers.items())
    assert status == 200, (params, status, answer)
    return answer


def call(tool, arguments):
    """A tool's result, which may be that it refuses, but never that the server failed."""
    answer = ask("tools/call", {"name": tool, "arguments": arguments})
    result = answer["result"]
    text = result["content"][0]["text"]
    shown = (tool, str(arguments)[:300], text[:300])
    if result.get("isError"):
        fields = result["structuredContent"]
        assert fields["code"] != "internal" and 10 < len(text) < 5_000, shown
    else:
        fields = json.loads(text)
    return result.get("isError", False), fields


def in_box(box, cmd):
    failed, done = call("sandbox_exec", {"id": box, "cmd": cmd, "note": "look"})
    assert not failed and done["exitCode"] == 0, done
    return done["stdout"]


def every_tool(box):
    # What makes each tool do something harmless or nothing: the rest of its arguments is varied around it.
    base = {
        "sandbox_start": {"goal": "x", "restore": "nosuch"},
        "sandbox_exec": {"id": box, "cmd": "true", "note": "x"},
        "sandbox_procs": {"id": box},
        "sandbox_build": {"id": box, "dir": "nosuch", "cmd": "true", "out": ["x"], "note": "x"},
        "sandbox_get": {"id": box, "path": "nosuch"},
        "sandbox_sync": {"id": box, "localPath": "/", "dest": "x"},
        "sandbox_pull": {"id": box, "path": "x", "localPath": "/"},
        "sandbox_wire": {"id": "nosuch", "service": "api", "port": 80},
        "sandbox_scene": {"id": "nosuch", "service": "api"},
        "sandbox_secrets": {"id": box, "names": ["NOSUCH"]},
        "sandbox_status": {"id": box},
        "sandbox_list": {},
        "sandbox_say": {"id": box, "text": "x"},
        "sandbox_fork": {"id": "nosuch"},
        "sandbox_freeze": {"id": "nosuch"},
        "sandbox_wake": {"id": "nosuch"},
        "sandbox_stop": {"id": "nosuch"},
        "sandbox_publish_version": {"service": "Bad", "label": "x", "image": "x"},
        "sandbox_versions": {},
        "sandbox_environments": {},
        "logs_search": {"project": "hostile"},
        "logs_errors": {"project": "hostile"},
        "logs_tail": {"project": "hostile", "waitSec": 0},
        "sandbox_feedback": {"task": "x", "usage": "x", "problems": "x", "suggestions": "x", "id": "nosuch"},
    }
    request("/v1/projects", "POST", json.dumps({"name": "hostile"}).encode())
    tools = ask("tools/list", {})["result"]["tools"]
    for tool in tools:
        name, schema = tool["name"], tool["inputSchema"]
        arguments = base[name]
        for field in schema.get("required", []):
            without = {key: value for key, value in arguments.items() if key != field}
            failed, said = call(name, without)
            assert failed, (name, field)
            # The two that work on the caller's disk say so whatever they are asked.
            if name not in ("sandbox_sync", "sandbox_pull"):
                assert f"`{field}` is required" in said["error"], (name, field, said)
        for field, about in schema["properties"].items():
            for value in TEXTS + OTHERS:
                if (name, field, value) == ("sandbox_start", "restore", None):
                    continue
                failed, said = call(name, {**arguments, field: value})
                kinds = about["type"] if isinstance(about["type"], list) else [about["type"]]
                kind = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
                fits = value is None or kind[type(value)] in kinds or (type(value) is int and "number" in kinds)
                if not fits:
                    assert failed, (name, field, str(value)[:100], said)
        failed, said = call(name, {**arguments, "no such field": 1})
        assert failed, name
    return [tool["name"] for tool in tools]


def archive(*entries):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                entry.linkname = content
                content = b""
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def sync(box, dest, body):
    path = f"/v1/boxes/{box}/sync?dest={urllib.parse.quote(dest)}"
    return request(path, "POST", body, {"Content-Type": "application/gzip"}.items())


def archives(box):
    good = ("good", tarfile.REGTYPE, b"good")
    in_box(box, "mkdir -p app && ln -s /etc app/out && ln -s /etc outside")
    before = in_box(box, "find /work -printf '%p %y %l %s\\n' | sort; md5sum /etc/passwd; ls /etc | md5sum")
    rows = [
        ("app", archive(good, ("../x", tarfile.REGTYPE, b"x"))),
        ("app", archive(good, ("/etc/x", tarfile.REGTYPE, b"x"))),
        ("app", archive(good, ("a/../../../etc/x", tarfile.REGTYPE, b"x"))),
        ("app", archive(good, ("out/x", tarfile.REGTYPE, b"x"))),
        ("app", archive(good, ("l", tarfile.SYMTYPE, "/etc"), ("l/x", tarfile.REGTYPE, b"x"))),
        ("app", archive(good, ("l", tarfile.SYMTYPE, "../../etc"))),
        ("app", archive(good, ("h", tarfile.LNKTYPE, "/etc/passwd"))),
        ("app", archive(good, ("c", tarfile.CHRTYPE, b""))),
        ("app", archive(good, ("b", tarfile.BLKTYPE, b""))),
        ("app", archive(good, ("f", tarfile.FIFOTYPE, b""))),
        ("outside", archive(good)),
        ("../etc", archive(good)),
        ("/etc", archive(good)),
        ("a\0b", archive(good)),
        ("x" * 5_000, archive(good)),
        ("app", b""),
        ("app", b"no archive"),
        ("app", gzip.compress(b"no tar" * 1_000)),
        ("app", archive(good)[:-10]),
    ]
    for dest, body in rows:
        status, said = sync(box, dest, body)
        assert status == 400 and len(said["error"]) > 10, (dest[:50], body[:50], status, said)
    # One that stops in the middle of its promise.
    body = archive(good, ("large", tarfile.REGTYPE, os.urandom(500_000)))
    address = urllib.parse.urlsplit(URL)
    with socket.create_connection((address.hostname, address.port)) as cut:
        head = f"POST /v1/boxes/{box}/sync?dest=app HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {KEY}\r\n"
        cut.sendall(f"{head}Content-Type: application/gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        cut.sendall(body[: len(body) // 2])
    look = "find /work -printf '%p %y %l %s\\n' | sort; md5sum /etc/passwd; ls /etc | md5sum"
    for _ in range(100):
        after = in_box(box, look)
        # What it had received of the one that was cut off goes once it notices.
        if after == before:
            break
    assert after == before, (before, after)


def many_files(box):
    many = [(f"d{n % 100}/f{n}", tarfile.REGTYPE, b"x") for n in range(100_000)]
    many.append((b"not utf-8 \xff\xfe".decode("utf-8", "surrogateescape"), tarfile.REGTYPE, b"x"))
    status, said = sync(box, "many", archive(*many))
    assert (status, said["changed"]) == (200, 100_001), (status, said)
    count = in_box(box, "cd many && find . -type f | wc -l; printf 'not utf-8 \\377\\376' | xargs -0 cat")
    assert count == "100001\nx", count
    # They are compared, built and looked at all the same.
    failed, built = call("sandbox_build", {"id": box, "dir": "many", "cmd": "echo y > y", "out": ["y"], "note": "x"})
    assert not failed and built["cached"], built
    failed, shown = call("sandbox_status", {"id": box, "fields": ["disk"]})
    assert not failed and shown["disk"]["filesystems"], shown


def strange_folder(box):
    """What the adapter meets on its own disk."""
    folder = pathlib.Path(FOLDER) / "strange"
    folder.mkdir()
    (folder / "plain").write_text("plain")
    os.mkfifo(folder / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    with open(os.fsencode(folder) + b"/not utf-8 \xff", "w") as file:
        file.write("x")
    (folder / "to").symlink_to("plain")
    child = subprocess.Popen([PROGRAM, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def over_adapter(tool, **arguments):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()
        while True:
            answer = json.loads(child.stdout.readline())
            if answer.get("id") == 1:
                return answer["result"].get("isError", False), answer["result"]["content"][0]["text"]

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}) + "\n")
    child.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    child.stdin.flush()
    child.stdout.readline()
    failed, said = over_adapter("sandbox_sync", id=box, localPath=str(folder), dest="strange")
    assert not failed and json.loads(said)["changedOnBox"] == 3, said
    assert in_box(box, "cd strange && find . -type f -o -type l | wc -l; cat to; test ! -e fifo") == "3\nplain"
    (folder / "away").symlink_to("/etc")
    before = in_box(box, "find strange | sort")
    for arguments in (
        {"localPath": str(folder)},
        {"localPath": "/dev/zero"},
        {"localPath": str(folder / "fifo")},
        {"localPath": "a\0b"},
        {"localPath": ""},
        {"localPath": HUGE},
        {"localPath": 1},
        {"dest": "../x"},
        {"dest": "a\0b"},
        {"exclude": ["x"] * 2_000},
        {"commit": "--output=/tmp/x"},
        {"commit": "HEAD"},
        {"alsoPaths": ["../../etc/passwd"]},
        {"maxMB": -1},
    ):
        arguments = {"id": box, "localPath": str(folder), "dest": "strange"} | arguments
        failed, said = over_adapter("sandbox_sync", **arguments)
        assert failed and 10 < len(said) < 5_000, (str(arguments)[:200], said[:300])
    assert in_box(box, "find strange | sort") == before
    target = pathlib.Path(FOLDER) / "target"
    target.mkdir()
    (target / "own").write_text("own")
    for arguments in (
        {"path": "../../etc/passwd"},
        {"path": "outside"},
        {"path": "/dev/zero"},
        {"path": "/proc/1/environ"},
        {"path": HUGE},
        {"path": "strange", "localPath": "/", "clean": True},
        {"path": "strange", "localPath": os.environ.get("HOME", "/root"), "clean": True},
        {"path": "strange", "localPath": "a\0b"},
    ):
        arguments = {"id": box, "localPath": str(target)} | arguments
        failed, said = over_adapter("sandbox_pull", **arguments)
        assert failed and 10 < len(said) < 5_000, (str(arguments)[:200], said[:300])
    assert [entry.name for entry in target.iterdir()] == ["own"]
    child.stdin.close()
    child.wait(timeout=30)


def main():
    failed, started = call("sandbox_start", {"goal": "hostile"})
    assert not failed, started
    box = started["id"]
    names = every_tool(box)
    failed, listed = call("sandbox_list", {"all": True})
    assert [shown["id"] for shown in listed["boxes"]] == [box], "nothing else was started"
    assert listed["boxes"][0]["status"] == "ready", listed
    archives(box)
    many_files(box)
    strange_folder(box)
    assert call("sandbox_versions", {})[1]["versions"] == []
    call("sandbox_stop", {"id": box})
    print(f"{len(names)} tools and no harm")


main()

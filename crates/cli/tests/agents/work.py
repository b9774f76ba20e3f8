"""What an agent does besides running commands, over `icebox mcp` with the official Python SDK: secrets, a server that is
waited for, builds that are reused in another box, a database that outlives a freeze, what is known of the box, and words
between it and a person.

Called with the program and a git project. The environment says where the server is."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import threading

from mcp import Client, StdioServerParameters

PROGRAM, PROJECT = sys.argv[1], pathlib.Path(sys.argv[2])


def adapter():
    environment = {name: os.environ[name] for name in ("ICEBOX_URL", "ICEBOX_DATA", "PATH")}
    return Client(StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment))


def icebox(*words, stdin=""):
    return subprocess.run([PROGRAM, *words], input=stdin, capture_output=True, text=True)


async def call(client, tool, fails=False, **arguments):
    result = await client.call_tool(tool, arguments)
    said = [item.text for item in result.content]
    assert bool(result.is_error) == fails, (tool, arguments, said)
    return said[0] if fails else json.loads(said[0])


async def run(client, box, cmd, note="look", **more):
    return await call(client, "sandbox_exec", id=box, cmd=cmd, note=note, **more)


async def secrets(client, box):
    assert icebox("secret", "set", "TOKEN", stdin="hush-4f1c\n").returncode == 0
    listed = icebox("secret", "ls")
    assert "TOKEN" in listed.stdout and "hush-4f1c" not in listed.stdout, listed
    done = await run(client, box, "echo ${TOKEN-none}")
    assert done["stdout"] == "none\n", done
    given = await call(client, "sandbox_secrets", id=box, names=["TOKEN"])
    assert given["names"] == ["TOKEN"], given
    done = await run(client, box, "echo $TOKEN; grep -rl hush-4f1c /work /etc /root /home 2>/dev/null")
    assert done["stdout"] == "hush-4f1c\n", done


async def servers(client, box):
    serve = "echo about to listen; sleep 1; exec python3 -u -m http.server 8080 --bind 127.0.0.1"
    up = await run(client, box, serve, "serve", background=True, readyPort=8080, readyLog="Serving HTTP")
    assert up["ready"] is True, up
    done = await run(client, box, "curl -sS -o /dev/null -w '%{http_code}' 127.0.0.1:8080/")
    assert done["stdout"] == "200", done
    refused = await call(
        client, "sandbox_exec", True, id=box, cmd="python3 -m nosuchmodule", note="fail", background=True, readyPort=9000
    )
    assert "exited with code 1" in refused and "nosuchmodule" in refused, refused
    await call(client, "sandbox_procs", id=box, action="stop", bgId=up["bgId"])


async def build(client, box, fails=False, **more):
    arguments = {"dir": "app", "cmd": "sh build.sh", "out": ["out"], "note": "build it"} | more
    return await call(client, "sandbox_build", fails, id=box, **arguments)


async def builds(client, box, other):
    await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app")
    first = await build(client, box)
    assert (first["reused"], first["cached"], first["exitCode"]) == (False, True, 0), first
    await run(client, box, "echo spoiled > app/out/result && touch app/out/extra")
    again = await build(client, box)
    assert again["reused"] is True and "exitCode" not in again, again
    done = await run(client, box, "cat app/out/result; ls app/out; ls -A .psbx-sync")
    assert done["stdout"] == "built from one\nresult\n", done
    await call(client, "sandbox_sync", id=other, localPath=str(PROJECT), dest="app")
    elsewhere = await build(client, other)
    assert elsewhere["reused"] is True, elsewhere
    done = await run(client, other, "cat app/out/result")
    assert done["stdout"] == "built from one\n", done
    # Anything that goes in makes it another build.
    for more in ({"env": {"A": "1"}}, {"cmd": "sh ./build.sh"}):
        assert (await build(client, other, **more))["reused"] is False, more
    await run(client, other, "echo two > app/one")
    changed = await build(client, other)
    assert changed["reused"] is False, changed
    done = await run(client, other, "cat app/out/result")
    assert done["stdout"] == "built from two\n", done
    # What fails, makes nothing, or changes what went in is not kept, and says so.
    for more, why in (
        ({"cmd": "false"}, "failed"),
        ({"out": ["nothing"]}, "made no `nothing`"),
        ({"cmd": "date +%N > one; sh build.sh"}, "changed files"),
    ):
        done = await build(client, other, **more)
        assert not done["cached"] and why in done["notCached"], (more, done)
    await run(client, other, "mkdir -p app/links && ln -s /etc app/links/etc && ln -s /etc app/outside")
    for more, why in (
        ({"dir": "nosuch"}, "no folder"),
        ({"dir": "../etc"}, "`dir` must be"),
        ({"dir": "app/outside"}, "leads out of /work"),
        ({"out": ["../x"]}, "`out` must be"),
        ({"out": []}, "`out` must be"),
        ({"cmd": ""}, "`cmd` must be"),
    ):
        refused = await build(client, other, True, **more)
        assert why in refused, (more, refused)
    done = await build(client, other, out=["links/etc/passwd"])
    assert not done["cached"] and "leads out of /work" in done["notCached"], done
    steps = (await call(client, "sandbox_status", id=box, fields=["steps"]))["steps"]
    built = [step for step in steps if step["kind"] == "build"]
    assert [step.get("detail") for step in built] == [None, "reused"], built
    assert built[0]["target"] == "app" and built[0]["note"] == "build it", built
    shown = icebox("build", box, "app", "--out", "out", "--", "sh", "build.sh")
    assert shown.returncode == 0 and "nothing ran" in shown.stderr, shown


async def database_in(client, box, name):
    shown = await call(client, "sandbox_status", id=box, fields=["running"])
    (database,) = shown["running"]["containers"]
    assert database["name"] == name, database
    return database


async def redis(client, box):
    done = await run(client, box, "psbx-testdb redis")
    if "no Redis in this box" in done["stderr"]:
        assert "apt-get install redis-tools" in done["stderr"], done
        return
    assert done["exitCode"] == 0 and "REDIS_URL=redis://127.0.0.1:6379/0" in done["stdout"], done
    talk = ". /work/.sbx/testdb/redis.env; exec 3<>/dev/tcp/$REDIS_HOST/$REDIS_PORT; printf '%s\\r\\n' "
    done = await run(client, box, talk + "'SET x 42' >&3; head -n 1 <&3")
    assert done["stdout"] == "+OK\r\n", done
    # A client that waits has its connection over the freeze.
    waits = talk + "'BLPOP q 0' >&3; head -n 5 <&3"
    waits = await run(client, box, waits, "wait for work", background=True)
    database = await database_in(client, box, "redis")
    assert (database["name"], database["status"], database["ports"]) == ("redis", "running", [6379]), database
    assert database["envFile"] == "/work/.sbx/testdb/redis.env", database
    await call(client, "sandbox_freeze", id=box)
    done = await run(client, box, talk + "'GET x' 'LPUSH q hello' >&3; head -n 3 <&3")
    assert done["stdout"] == "$2\r\n42\r\n:1\r\n", done
    waited = await call(client, "sandbox_procs", id=box, action="wait", bgId=waits["bgId"])
    assert waited["exitCode"] == 0 and "hello" in waited["stdout"], waited
    done = await run(client, box, "psbx-testdb rm redis; psbx-testdb list; ls /work/.sbx/testdb")
    assert done["stdout"] == "", done
    shown = await call(client, "sandbox_status", id=box)
    assert shown["running"]["containers"] == [] and shown["disk"]["measuredAt"], shown


async def postgres(client, box):
    done = await run(client, box, "psbx-testdb postgres")
    if "no PostgreSQL in this box" in done["stderr"]:
        assert "apt-get install postgresql" in done["stderr"], done
        return
    assert done["exitCode"] == 0 and "DATABASE_URL=postgresql://" in done["stdout"], done
    ask = "set -a; . /work/.sbx/testdb/postgres.env; psql -qtA \"$DATABASE_URL\" -c "
    done = await run(client, box, ask + "'create table t as select 42 as x'")
    assert done["exitCode"] == 0, done
    database = await database_in(client, box, "postgres")
    assert (database["name"], database["status"], database["ports"]) == ("postgres", "running", [5432]), database
    await call(client, "sandbox_freeze", id=box)
    done = await run(client, box, ask + "'select x from t'")
    assert done["stdout"] == "42\n", done
    done = await run(client, box, "psbx-testdb rm postgres; psbx-testdb list; ls /work/.sbx/testdb")
    assert done["stdout"] == "", done


async def memory(client):
    small = await call(client, "sandbox_start", goal="run out of memory", size={"memoryMb": 256})
    box = small["id"]
    done = await run(client, box, "python3 -c 'x = b\"x\" * (1 << 30)'")
    assert done["exitCode"] != 0 if "exitCode" in done else done["signal"] == "SIGKILL", done
    assert "no memory left (256 MB)" in done["endReason"] and "ended 1 of its programs" in done["endReason"], done
    shown = await call(client, "sandbox_status", id=box, fields=["health"])
    assert shown["health"]["memoryKills"] == 1, shown
    done = icebox("exec", box, "--", "python3 -c 'x = b\"x\" * (1 << 30)'; exit 3")
    assert done.returncode == 3 and "no memory left" in done.stderr, done
    await call(client, "sandbox_stop", id=box)


def web(version):
    """A project for npm below the synced one: it needs that version of a package, which comes with it."""
    package, project = PROJECT.parent / "package", PROJECT / "web"
    for folder in (package, project):
        folder.mkdir(exist_ok=True)
    (package / "package.json").write_text(json.dumps({"name": "a", "version": version}))
    needs = {"name": "web", "version": "1.0.0", "dependencies": {"a": f"file:a-{version}.tgz"}}
    (project / "package.json").write_text(json.dumps(needs))
    quietly = ["--silent", "--offline", "--no-audit", "--no-fund"]
    environment = os.environ | {"HOME": str(PROJECT.parent)}
    for words, folder in (
        (["pack", "--pack-destination", str(project)], package),
        (["install", "--package-lock-only"], project),
    ):
        subprocess.run(["npm", *words, *quietly], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


async def packages(client, box):
    """Whether what a synced project needs is installed is said with the sync."""
    arguments = {"id": box, "localPath": str(PROJECT), "dest": "site"}
    web("1.0.0")
    sent = await call(client, "sandbox_sync", **arguments)
    assert sent["deps"] == [{"dir": "web", "lock": "package-lock.json", "state": "missing"}], sent
    assert "web/package-lock.json" in sent["uncommitted"]["paths"], sent
    install = {"cmd": "npm ci --offline --no-audit --no-fund", "cwd": "site/web"}
    done = await run(client, box, note="install", **install)
    assert done["exitCode"] == 0, done
    sent = await call(client, "sandbox_sync", **arguments)
    assert "deps" not in sent and sent["sentFiles"] == 0, sent
    web("2.0.0")
    sent = await call(client, "sandbox_sync", **arguments)
    (stale,) = sent["deps"]
    assert (stale["state"], stale["differ"], stale["wanted"]) == ("stale", 1, 1), sent


async def known(client, box):
    await run(client, box, "head -c 3000000 /dev/zero > big; head -c 2000000 /dev/zero > /tmp/big; sleep 1000 &>/dev/null & true")
    begun = await run(client, box, "sleep 1000", "wait", background=True)
    shown = await call(client, "sandbox_status", id=box)
    assert shown["health"]["daemon"] == "ok" and shown["boxdVersion"], shown["health"]
    assert begun["bgId"] in [command["execId"] for command in shown["running"]["commands"]], shown["running"]
    disk = shown["disk"]
    while disk.get("measuring"):
        disk = (await call(client, "sandbox_status", id=box, fields=["disk"]))["disk"]
    assert [system["path"] for system in disk["filesystems"]] == ["/work", "/", "/tmp", "/dev/shm"], disk
    assert disk["filesystems"][0]["sizeGb"] > 0 and disk["filesystems"][1]["sameAs"] == "/work", disk
    assert disk["work"][0]["path"] == "/work/big", disk
    assert "/tmp/big" in [used["path"] for used in disk["temp"]], disk
    again = (await call(client, "sandbox_status", id=box, fields=["disk"]))["disk"]
    assert again == disk, "it is good for 30 s"
    listed = await call(client, "sandbox_procs", id=box, all=True)
    assert not any("psbx-sync" in proc["cmd"] for proc in listed["procs"]), listed
    (idle,) = [proc for proc in listed["procs"] if proc["bgId"] == begun["bgId"]]
    assert idle["cpu"] == 0 and all("cpu" not in proc for proc in listed["procs"] if not proc["running"]), listed
    busy = await run(client, box, "while :; do :; done", "keep busy", background=True)
    async with asyncio.timeout(60):
        cpu = 0
        while cpu < 0.2:
            (shown,) = (await call(client, "sandbox_procs", id=box, bgId=busy["bgId"]))["procs"]
            cpu = shown["cpu"]
    table = icebox("ps", box).stdout
    assert " CPU " in table.splitlines()[0], table
    await call(client, "sandbox_procs", id=box, action="stop", bgId=busy["bgId"])
    await call(client, "sandbox_procs", id=box, action="stop", bgId=begun["bgId"])
    frozen = await call(client, "sandbox_freeze", id=box)
    seen = await call(client, "sandbox_status", id=box)
    assert seen["status"] == "frozen" and "disk" not in seen and "running" not in seen, seen
    assert seen["lastUsedAt"] == frozen["lastUsedAt"], "looking is no use"


async def words(client, box):
    assert icebox("tell", box, "use the other branch").returncode == 0
    result = await client.call_tool("sandbox_exec", {"id": box, "cmd": "true", "note": "go on"})
    fields = json.loads(result.content[0].text)
    assert [said["text"] for said in fields["fromHuman"]] == ["use the other branch"], fields
    assert "use the other branch" in result.content[1].text, result
    assert "fromHuman" not in await run(client, box, "true")
    # The adapter says that it arrived once its client has it.
    while "waits" in icebox("tell", box).stdout:
        await asyncio.sleep(0.05)
    assert "just now" in icebox("tell", box).stdout
    await call(client, "sandbox_say", id=box, text="On the other branch now.")
    assert "On the other branch now." in icebox("status", box).stdout
    feedback = {"task": "test", "usage": "all of it", "problems": "none", "suggestions": "none"}
    assert (await call(client, "sandbox_feedback", id=box, **feedback))["ok"] is True


async def names(client, box, other):
    serve = "exec python3 -m http.server 8090 --bind 127.0.0.1"
    up = await run(client, box, serve, "serve", background=True, readyPort=8090)
    wired = icebox("wire", other, "peer:80", "--link", box, "--target-port", "8090")
    assert wired.returncode == 0 and f"port 8090 of box {box}" in wired.stdout, wired
    done = await run(client, other, "curl -sS -o /dev/null -w '%{http_code}' peer/")
    assert done["stdout"] == "200", done
    assert icebox("wire", other).stdout == wired.stdout
    assert f"peer of box {other} is port 8090 here" in icebox("status", box).stdout
    scene = icebox("scene", other, "http://peer/a")
    assert scene.stdout.startswith(f"http://8090-{box}.") and scene.stdout.endswith("/a\n"), scene
    refused = await call(client, "sandbox_wire", True, id=box, service="self", port=80, fromBox=box)
    assert "another box" in refused, refused
    await call(client, "sandbox_procs", id=box, action="stop", bgId=up["bgId"])


async def baseline(client, box):
    git = ["git", "-C", str(PROJECT), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    (PROJECT / "one").write_text("changed\n")
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    await run(client, box, "mkdir -p tree/node_modules/.vite tree/node_modules/a && touch tree/node_modules/a/b")
    sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="tree", baseline="HEAD~1")
    assert len(sent["baseline"]["commitSha"]) == 40 and sent["baseline"]["deps"] == ["node_modules"], sent
    done = await run(client, box, "cat tree/one tree-baseline/one; ls -A tree-baseline/node_modules")
    assert done["stdout"] == "changed\none\na\n", done
    refused = await call(client, "sandbox_sync", True, id=box, localPath=str(PROJECT), dest=".", baseline="HEAD")
    assert "`baseline` goes with" in refused, refused
    refused = await call(client, "sandbox_sync", True, id=box, localPath=str(PROJECT), dest="x", submodules=True)
    assert "goes with `commit`" in refused, refused


async def left(client, box):
    # What stays here is told: what git ignores beside what is sent, and what is no file.
    (PROJECT / ".git/info/exclude").write_text("*.local\n")
    (PROJECT / "settings.local").write_text("x")
    sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="left")
    assert sent["partiallyIgnored"] == {"count": 1, "paths": ["."]} and "skipped" not in sent, sent
    assert any("git ignores files beside some" in note for note in sent["notes"]), sent
    (PROJECT / "settings.local").unlink()
    sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="left")
    assert "partiallyIgnored" not in sent and "notes" not in sent, sent
    plain = PROJECT.parent / "plain"
    (plain / "node_modules/a").mkdir(parents=True)
    (plain / "file").write_text("x")
    os.mkfifo(plain / "pipe")
    sent = await call(client, "sandbox_sync", id=box, localPath=str(plain), dest="plain")
    assert (sent["files"], sent["skipped"]) == (1, {"count": 2, "paths": ["pipe", "node_modules"]}), sent
    # And so is what changes under it.
    over = threading.Event()

    def scribble():
        with open(plain / "busy", "wb") as busy:
            while not over.is_set():
                busy.seek(0)
                busy.write(os.urandom(1 << 20))

    scribbling = threading.Thread(target=scribble)
    scribbling.start()
    try:
        sent = await call(client, "sandbox_sync", id=box, localPath=str(plain), dest="plain")
        while not sent["sentFiles"]:
            sent = await call(client, "sandbox_sync", id=box, localPath=str(plain), dest="plain")
    finally:
        over.set()
        scribbling.join()
    assert sent["changedWhileReading"] == ["busy"] and any("sync again: busy" in note for note in sent["notes"]), sent
    sent = await call(client, "sandbox_sync", id=box, localPath=str(plain), dest="plain")
    assert "changedWhileReading" not in sent, sent


async def versions(client):
    source = (await call(client, "sandbox_start", goal="make an api"))["id"]
    # What it answers is in its memory alone, so that only memory goes on with it.
    write = "import os, http.server as h\n" + (
        "class A(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers()\n"
        "        self.wfile.write((MODE + '\\n').encode())\n"
        "MODE = os.environ.get('MODE', 'none')\n"
        "h.HTTPServer(('127.0.0.1', 3000), A).serve_forever()\n"
    )
    await run(client, source, "cat > api.py", stdin=write)
    await run(client, source, "python3 api.py", env={"MODE": "one"}, background=True, readyPort=3000)
    one = {"service": "api", "label": "one", "fromBox": source, "note": "it answers"}
    one = await call(client, "sandbox_publish_version", **one)
    two = {"service": "api", "label": "two", "fromBox": source, "cmd": "exec python3 api.py"}
    await call(client, "sandbox_publish_version", **two)
    await call(client, "sandbox_stop", id=source)
    listed = (await call(client, "sandbox_versions", service="api"))["versions"]
    assert [version["label"] for version in listed] == ["two", "one"], listed

    services = [{"name": "api", "port": 8000, "targetPort": 3000, "version": "one"}]
    box = (await call(client, "sandbox_start", goal="use it", services=services))["id"]
    ask = "curl -sS --max-time 20 api:8000"
    assert (await run(client, box, ask))["stdout"] == "one\n", "what ran goes on"
    (first,) = (await call(client, "sandbox_status", id=box, fields=["services"]))["services"]
    assert (first["version"], first["versionId"]) == ("one", one["versionId"]), first
    await call(client, "sandbox_freeze", id=first["fromBox"])
    assert (await run(client, box, ask))["stdout"] == "one\n", "a connection wakes it"

    wire = {"id": box, "service": "api", "targetPort": 3000, "version": "two"}
    (second,) = (await call(client, "sandbox_wire", **wire, env={"MODE": "two"}))["services"]
    assert (second["version"], second["env"]) == ("two", {"MODE": "two"}), second
    assert (await run(client, box, ask))["stdout"] == "two\n", "another version, by its command"
    table = icebox("wire", box).stdout
    assert f"version two, port 3000 of box {second['fromBox']}" in table, table
    refused = await call(client, "sandbox_wire", True, **{**wire, "targetPort": 3001, "version": "one"})
    assert "nothing listens on port 3001" in refused, refused
    assert (await run(client, box, ask))["stdout"] == "two\n", "what was there stays"
    wired = icebox("wire", box, "api", "--target-port", "3000", "--version", "two", "--env", "MODE=three")
    assert wired.returncode == 0, wired
    assert (await run(client, box, ask))["stdout"] == "three\n", wired

    await call(client, "sandbox_stop", id=box)
    async with asyncio.timeout(60):
        while [one for one in (await call(client, "sandbox_list"))["boxes"] if "api" in one.get("name", "")]:
            pass


async def work():
    async with adapter() as client:
        box = (await call(client, "sandbox_start", goal="work", name="work"))["id"]
        other = (await call(client, "sandbox_start", goal="work elsewhere"))["id"]
        # First, for what a box was given goes into its builds, too.
        await builds(client, box, other)
        await known(client, other)
        await names(client, box, other)
        for step in (secrets, servers, postgres, redis, words, packages, baseline):
            await step(client, box)
        await left(client, box)
        await memory(client)
        await versions(client)
        for each in (box, other):
            await call(client, "sandbox_stop", id=each)
    print("the work is done")


asyncio.run(work())

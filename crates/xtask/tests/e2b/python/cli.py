"""E2B's command line, unchanged, as a person at a terminal uses it."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile

from ours import advance, api, run_parts

E2B = sys.argv[1]
HOME = tempfile.TemporaryDirectory()
# No other settings than these are needed, and none of this machine's are used.
ENV = {"HOME": HOME.name, "PATH": os.environ["PATH"], "NO_COLOR": "1"}
ENV |= {name: os.environ[name] for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_API_KEY")}
PLAIN = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07)")


def e2b(*words, stdin=None, code=0):
    """What a command said on its standard output and on the other one."""
    given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    done = subprocess.run(["node", E2B, *words], env=ENV, capture_output=True, text=True, timeout=120, **given)
    assert done.returncode == code, (words, done)
    return PLAIN.sub("", done.stdout), PLAIN.sub("", done.stderr)


def create(*options):
    said, _ = e2b("sandbox", "create", "--detach", *options)
    return said.strip()


def kill(*ids):
    said, _ = e2b("sandbox", "kill", *ids)
    assert all(f"Sandbox {id} has been killed" in said for id in ids), said


def status_of(id):
    return api("GET", f"/v1/boxes/{id}", bearer=True)[1]["status"]


def templates():
    said, _ = e2b("template", "list")
    assert "base" in said and "Public" in said, said
    said, _ = e2b("template", "list", "--format", "json")
    [first, *_] = json.loads(said)
    assert first["templateID"] == "base" and first["buildStatus"] == "ready"
    _, said = e2b("template", "delete", "base", "--yes", code=1)
    assert "cannot be removed" in said, said
    _, said = e2b("template", "publish", "base", "--yes", code=1)
    assert "not implemented" in said, said


def sandboxes():
    said, _ = e2b("sandbox", "list")
    assert "No sandboxes found" in said
    first = create("--timeout", "3600")
    advance(1)
    second = create("base", "--lifecycle.ontimeout", "pause", "--lifecycle.autoresume")
    said, _ = e2b("sandbox", "list")
    assert first in said and second in said and "Running" in said, said
    said, _ = e2b("sandbox", "list", "--format", "json", "--order", "asc", "--limit", "1", "--template", "base")
    assert [info["sandboxId"] for info in json.loads(said)] == [first], said
    after = json.loads(said)[0]["startedAt"]
    said, _ = e2b("sandbox", "list", "--started-after", after, "--format", "json")
    assert first in said and second in said, said
    said, _ = e2b("sandbox", "list", "--metadata", "nobody=here")
    assert "No sandboxes found" in said
    said, _ = e2b("sandbox", "info", second)
    assert second in said and '"onTimeout": "pause"' in said, said
    said, _ = e2b("sandbox", "info", first, "--format", "json")
    assert json.loads(said)["state"] == "running"
    e2b("sandbox", "info", "a" * 20, code=1)
    said, _ = e2b("sandbox", "pause", first)
    assert "has been paused" in said
    said, _ = e2b("sandbox", "pause", first)
    assert "already paused" in said
    said, _ = e2b("sandbox", "list", "--state", "paused", "--format", "json")
    assert [info["sandboxId"] for info in json.loads(said)] == [first]
    said, _ = e2b("sandbox", "resume", first)
    assert "has been resumed" in said
    kill(first)
    _, said = e2b("sandbox", "kill", first)
    assert "wasn't found" in said
    e2b("sandbox", "resume", first, code=1)
    said, _ = e2b("sandbox", "kill", "--all")
    assert "Killed 1 running sandboxes" in said, said


def commands():
    box = create("--timeout", "86400")
    assert e2b("sandbox", "exec", box, "echo out; echo err >&2") == ("out\n", "err\n")
    said, _ = e2b("sandbox", "exec", "-u", "root", "-c", "/tmp", "-e", "A=b c", box, "--", "sh", "-c", "id -u; pwd; echo $A")
    assert said == "0\n/tmp\nb c\n", said
    e2b("sandbox", "exec", box, "exit 7", code=7)
    advance(3600)
    assert status_of(box) == "frozen"
    said, _ = e2b("sandbox", "exec", box, "wc -c", stdin="x" * 200_000)
    assert said == "200000\n", said
    _, pid = e2b("sandbox", "exec", "--background", box, "sleep 100000")
    said, _ = e2b("sandbox", "exec", box, f"cat /proc/{pid.strip()}/comm")
    assert said == "bash\n" or said == "sleep\n", said
    _, said = e2b("sandbox", "exec", "a" * 20, "true", code=1)
    assert "not found" in said, said
    kill(box)


def figures():
    box = create()
    said, _ = e2b("sandbox", "logs", box)
    assert f"Logs for sandbox {box}" in said and "lifecycle" in said, said
    said, _ = e2b("sandbox", "logs", box, "--format", "json", "--loggers", "lifecycle")
    assert json.loads(said.strip().splitlines()[0])["logger"] == "lifecycle", said
    said, _ = e2b("sandbox", "logs", box, "--format", "json", "--level", "ERROR")
    assert said.strip() == "", said
    for _ in range(60):
        said, _ = e2b("sandbox", "metrics", box, "--format", "json")
        if said.strip():
            break
    assert json.loads(said.splitlines()[-1])["memTotal"] > 0
    said, _ = e2b("sandbox", "metrics", box)
    assert "MiB" in said, said
    kill(box)


def snapshots():
    box = create()
    e2b("sandbox", "exec", box, "echo kept > kept")
    said, _ = e2b("sandbox", "snapshot", "create", box, "--name", "mine")
    assert "Created snapshot default/mine:default" in said, said
    said, _ = e2b("sandbox", "snapshot", "list", box)
    assert "default/mine:default" in said, said
    other = create("mine")
    assert e2b("sandbox", "exec", other, "cat kept")[0] == "kept\n"
    said, _ = e2b("sandbox", "snapshot", "delete", "default/mine:default")
    assert "has been deleted" in said, said
    kill(box, other)


def at_terminal(*words, typed):
    """What a command shows at a terminal when this is typed at each prompt of the box's shell."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("node", ["node", E2B, *words], ENV)
    shown, typed = b"", list(typed)
    try:
        while select.select([terminal], [], [], 60)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
            if typed and shown.rstrip().endswith((b"$", b"#")):
                os.write(terminal, typed.pop(0))
                shown += b"\n"
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert not typed, (typed, shown)
    return PLAIN.sub("", shown.decode()), os.waitstatus_to_exitcode(status)


def terminals():
    box = create("--timeout", "86400")
    advance(3600)
    assert status_of(box) == "frozen"
    shown, code = at_terminal("sandbox", "connect", box, typed=[b"echo I am $(whoami)\r", b"exit\r"])
    assert code == 0 and "I am user" in shown and "Closing terminal connection" in shown, shown
    shown, code = at_terminal("sandbox", "connect", "-u", "root", "-c", "/tmp", box, typed=[b"pwd; id -u\r", b"exit\r"])
    assert code == 0 and "/tmp" in shown, shown
    kill(box)
    shown, code = at_terminal("sandbox", "create", "base", typed=[b"echo of $(hostname)\r", b"exit\r"])
    assert code == 0 and "of box" in shown, shown
    # Its sandbox has a second left when its terminal closed.
    advance(1)
    assert "No sandboxes found" in e2b("sandbox", "list")[0]


run_parts(globals())

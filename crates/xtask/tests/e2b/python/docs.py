"""What the documentation of the synchronous SDK shows, part by part, with an idle freeze in the middle of each."""

import datetime
import inspect
import io
import threading
import time
import urllib.error
import urllib.request

from e2b import (
    CommandExitException,
    FilesystemEventType,
    FileType,
    PtySize,
    Sandbox,
    SandboxQuery,
    SandboxState,
)
from e2b.exceptions import (
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)

from ours import URL, advance, api, idle, raises, run_parts, status_of

DAY = 24 * 3600


def takes(method, name):
    """Whether this version of the SDK has a parameter."""
    return name in inspect.signature(method).parameters


def sandboxes():
    with Sandbox.create(timeout=60, envs={"COLOUR": "blue"}, metadata={"user": "1"}) as box:
        info = box.get_info()
        assert (info.template_id, info.name, info.state) == ("base", "base", SandboxState.RUNNING)
        assert info.sandbox_id == box.sandbox_id and info.metadata == {"user": "1"}
        assert info.cpu_count >= 1 and info.memory_mb >= 128 and info.envd_version
        box.set_timeout(DAY)
        assert (box.get_info().end_at - info.started_at).total_seconds() == DAY
        Sandbox.set_timeout(box.sandbox_id, DAY + 60)
        idle(box)
        same = Sandbox.connect(box.sandbox_id)
        assert same.commands.run("echo $COLOUR").stdout == "blue\n"
        assert same.get_info().end_at == Sandbox.get_info(box.sandbox_id).end_at
        host = box.get_host(3000)
        assert host.startswith(f"3000-{box.sandbox_id}."), host
        assert box.is_running() and same.is_running()
    assert not box.is_running()
    raises(NotFoundException, box.get_info)
    assert Sandbox.kill(box.sandbox_id) is False
    if takes(Sandbox.create, "idempotency_key"):
        once = Sandbox.create(timeout=60, idempotency_key="the-one")
        assert Sandbox.create(timeout=60, idempotency_key="the-one").sandbox_id == once.sandbox_id
        error = raises(SandboxException, lambda: Sandbox.create(timeout=61, idempotency_key="the-one"))
        assert "422" in str(error), error
        assert once.kill()


def listing():
    boxes = [Sandbox.create(timeout=DAY, metadata={"env": "dev", "n": str(n)}) for n in range(3)]
    try:
        idle(boxes[0])
        ids = [box.sandbox_id for box in boxes]
        running = SandboxQuery(state=[SandboxState.RUNNING], metadata={"env": "dev"})
        seen, pages = [], Sandbox.list(query=running, limit=2)
        while pages.has_next:
            seen += [info.sandbox_id for info in pages.next_items()]
        assert sorted(seen) == sorted(ids)
        one = Sandbox.list(query=SandboxQuery(metadata={"n": "1"})).next_items()
        assert [info.sandbox_id for info in one] == [ids[1]]
        assert status_of(boxes[0]) == "frozen"
    finally:
        assert all(box.kill() for box in boxes)


def commands():
    box = Sandbox.create(timeout=DAY)
    try:
        out, err = [], []
        result = box.commands.run(
            "for n in 1 2 3; do echo out $n; echo err $n >&2; done",
            on_stdout=out.append,
            on_stderr=err.append,
        )
        assert "".join(out) == result.stdout == "out 1\nout 2\nout 3\n"
        assert "".join(err) == result.stderr == "err 1\nerr 2\nerr 3\n"
        count = "n=0; while sleep 0.01; do n=$((n + 1)); echo $n; done"
        counter = box.commands.run(count, background=True, timeout=0)
        first = next(stdout for stdout, _, _ in counter if stdout)
        counter.disconnect()
        idle(box)
        again = box.commands.connect(counter.pid, timeout=0)
        later = next(stdout for stdout, _, _ in again if stdout)
        assert int(later.split()[-1]) > int(first.split()[0])
        [listed] = [process for process in box.commands.list() if process.pid == counter.pid]
        assert (listed.cmd, listed.args[-1]) == ("/bin/bash", count)
        assert again.kill()
        ended = raises(CommandExitException, again.wait)
        assert ended.exit_code != 0 and "signal: killed" in str(ended.error), ended
        # How it ended is told to those who come a little late, too.
        late = box.commands.connect(counter.pid)
        assert raises(CommandExitException, late.wait).exit_code == ended.exit_code
        raises(NotFoundException, lambda: box.commands.connect(999_999))

        cat = box.commands.run("cat", background=True, stdin=True)
        box.commands.send_stdin(cat.pid, "grüße ")
        if hasattr(box.commands, "stream_input"):
            box.commands.stream_input(cat.pid, ("x" * 100_000 for _ in range(20)))
        box.commands.close_stdin(cat.pid)
        said = cat.wait().stdout
        assert said.startswith("grüße ") and len(said) in (6, 6 + 2_000_000), len(said)

        big = box.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
        assert big.stdout == "x" * 3_000_000
        raises(InvalidArgumentException, lambda: box.commands.run("pwd", cwd="/nowhere"))
        slow = raises(TimeoutException, lambda: box.commands.run("sleep 60", timeout=1))
        assert "timeout" in str(slow), slow
        assert box.commands.run("sudo -n id -u").stdout == "0\n"
        home = box.commands.run("echo $HOME $USER $LOGNAME; ! tty", user="root")
        assert home.stdout == "/root root root\nnot a tty\n", home.stdout
    finally:
        assert box.kill()


def files():
    box = Sandbox.create(timeout=DAY)
    try:
        written = box.files.write("/tmp/one", "text")
        assert (written.path, written.name) == ("/tmp/one", "one")
        many = [
            {"path": "docs/a.txt", "data": "a"},
            {"path": "docs/deep/b.bin", "data": b"\x00\x01"},
            {"path": "docs/c.txt", "data": io.BytesIO(b"from a file")},
        ]
        infos = box.files.write_files(many)
        assert [info.path for info in infos] == [
            "/home/user/docs/a.txt",
            "/home/user/docs/deep/b.bin",
            "/home/user/docs/c.txt",
        ]
        idle(box)
        assert box.files.read("/tmp/one") == "text"
        assert bytes(box.files.read("docs/deep/b.bin", format="bytes")) == b"\x00\x01"
        assert b"".join(box.files.read("docs/c.txt", format="stream")) == b"from a file"
        names = {entry.path: entry.type for entry in box.files.list("docs", depth=2)}
        assert names["/home/user/docs/deep"] == FileType.DIR
        assert names["/home/user/docs/deep/b.bin"] == FileType.FILE
        info = box.files.get_info("docs/a.txt")
        assert (info.size, info.owner, info.permissions) == (1, "user", "-rw-r--r--"), info
        box.commands.run("ln -s a.txt docs/link")
        link = box.files.get_info("docs/link")
        assert link.symlink_target == "/home/user/docs/a.txt", link
        assert box.files.exists("docs/link") and not box.files.exists("docs/none")
        moved = box.files.rename("docs/a.txt", "new/place.txt")
        assert moved.path == "/home/user/new/place.txt"
        assert box.files.make_dir("empty") and not box.files.make_dir("empty")
        box.files.remove("new")
        raises(NotFoundException, lambda: box.files.read("new/place.txt"))
        raises(NotFoundException, lambda: box.files.list("new"))
        raises(InvalidArgumentException, lambda: box.files.read("docs"))
        text = "packed " * 10_000
        box.files.write("packed", text, gzip=True, metadata={"Kind": "log"})
        assert box.files.read("packed", gzip=True) == text
        assert box.files.get_info("packed").metadata == {"kind": "log"}
        box.files.write("raw", b"raw", use_octet_stream=True)
        box.files.write("/root/theirs", "root's", user="root")
        assert box.files.read("/root/theirs", user="root") == "root's"
        box.commands.run("true")
    finally:
        assert box.kill()


def links():
    box = Sandbox.create(timeout=DAY)
    try:
        boundary = "b0undary"
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="ignored"\r\n'
            f"Content-Type: text/plain\r\n\r\nuploaded\r\n--{boundary}--\r\n"
        ).encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        up = box.upload_url("up.txt", use_signature_expiration=600)
        urllib.request.urlopen(urllib.request.Request(up, body, kind)).close()
        idle(box)
        down = box.download_url("up.txt", use_signature_expiration=600)
        part = urllib.request.Request(down, headers={"Range": "bytes=2-4"})
        with urllib.request.urlopen(part) as answer:
            assert (answer.status, answer.read()) == (206, b"loa")
        late = box.download_url("up.txt", use_signature_expiration=-10)
        error = raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(late))
        assert error.code == 401 and b"expired" in error.read()
        other = box.upload_url("other.txt", user="root")
        urllib.request.urlopen(urllib.request.Request(other, body, kind)).close()
        assert box.files.read("/root/other.txt", user="root") == "uploaded"
    finally:
        assert box.kill()


def until(watch, wanted):
    """The events of a watch up to one that is waited for."""
    seen = []
    for _ in range(500):
        seen += watch.get_new_events()
        if any(wanted(event) for event in seen):
            return seen
        time.sleep(0.01)
    raise AssertionError(seen)


def watching():
    box = Sandbox.create(timeout=DAY)
    try:
        box.files.make_dir("seen/below")
        watch = box.files.watch_dir("seen", recursive=True, include_entry=True)
        box.files.write("seen/below/a", "1")
        events = until(watch, lambda event: event.type == FilesystemEventType.WRITE)
        assert {event.name for event in events} == {"below/a"}, events
        assert events[-1].entry.path == "/home/user/seen/below/a"
        idle(box)
        # What happens in it while nobody asks is kept, over the freeze, too.
        box.commands.run("mv seen/below/a seen/b; chmod 600 seen/b; rm seen/b")
        events = until(watch, lambda event: event.type == FilesystemEventType.REMOVE)
        kinds = [(event.name, event.type.value) for event in events]
        for wanted in [("below/a", "rename"), ("b", "create"), ("b", "chmod"), ("b", "remove")]:
            assert wanted in kinds, kinds
        watch.stop()
        raises(SandboxException, watch.get_new_events)
        raises(NotFoundException, lambda: box.files.watch_dir("nowhere"))
    finally:
        assert box.kill()


# Watches a folder by itself, and says what it sees in a file.
WATCHER = """
import ctypes, os, struct
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0)
assert libc.inotify_add_watch(fd, b"/home/user/seen", 0x100) >= 0
while True:
    data = os.read(fd, 4096)
    while data:
        _, _, _, size = struct.unpack("iIII", data[:16])
        with open("/tmp/heard", "ab") as heard:
            heard.write(data[16:16 + size].rstrip(b"\\0") + b"\\n")
        data = data[16 + size:]
"""


def watchers():
    """A program of the box that watches files itself, over a freeze."""
    box = Sandbox.create(timeout=DAY)
    try:
        box.files.make_dir("seen")
        box.files.write("watcher.py", WATCHER)
        box.commands.run("python3 watcher.py", background=True, timeout=0).disconnect()

        def hears(name):
            # It may not watch yet when the first one comes.
            until = f"until touch seen/{name}-$((n++)) && sleep 0.02 && grep -q ^{name}- /tmp/heard; do :; done"
            box.commands.run(until, timeout=20)

        hears("before")
        idle(box)
        hears("after")
    finally:
        assert box.kill()


def ptys():
    box = Sandbox.create(timeout=DAY)
    try:
        pty = box.pty.create(PtySize(rows=24, cols=80), cwd="/tmp", envs={"SAY": "hi"}, timeout=0)
        box.pty.send_stdin(pty.pid, b"echo $SAY $TERM $PWD; held=ye''s\n")
        heard = b""
        for _, _, data in pty:
            heard += data or b""
            if b"hi xterm-256color /tmp" in heard:
                break
        pty.disconnect()
        idle(box)
        again = box.pty.connect(pty.pid, timeout=0)
        box.pty.resize(pty.pid, PtySize(rows=40, cols=120))
        box.pty.send_stdin(pty.pid, b"stty size; echo held=$held; exit 3\n")
        heard = []
        ended = raises(CommandExitException, lambda: again.wait(on_pty=heard.append))
        assert ended.exit_code == 3
        heard = b"".join(heard)
        assert b"40 120" in heard and b"held=yes" in heard, heard
        assert not box.pty.kill(pty.pid)
    finally:
        assert box.kill()


def git():
    box = Sandbox.create(timeout=DAY)
    try:
        box.git.init("origin.git", bare=True, initial_branch="main")
        box.git.configure_user("Ann", "ann@example.com")
        assert box.git.get_config("user.name") == "Ann"
        box.git.init("work", initial_branch="main")
        box.files.write("work/README.md", "# one\n")
        status = box.git.status("work")
        assert status.has_untracked and not status.is_clean
        box.git.add("work")
        box.git.commit("work", "first", author_name="Bo", author_email="bo@example.com")
        box.git.remote_add("work", "origin", "/home/user/origin.git")
        box.git.push("work", remote="origin", branch="main")
        idle(box)
        box.git.clone("/home/user/origin.git", path="clone")
        box.git.create_branch("clone", "topic")
        assert box.git.branches("clone").current_branch == "topic"
        box.files.write("clone/README.md", "# two\n")
        box.git.add("clone", files=["README.md"])
        box.git.restore("clone", ["README.md"], staged=True)
        assert not box.git.status("clone").has_staged
        box.git.add("clone", all=True)
        box.git.commit("clone", "second")
        box.git.push("clone", remote="origin", branch="topic")
        box.git.checkout_branch("clone", "main")
        box.git.delete_branch("clone", "topic", force=True)
        box.commands.run("git -C /home/user/origin.git branch -f main topic")
        box.git.pull("work", remote="origin", branch="main")
        assert box.files.read("work/README.md") == "# two\n"
        box.git.reset("work", mode="hard", target="HEAD~1")
        assert box.files.read("work/README.md") == "# one\n"
        assert box.git.status("work").behind == 1
        assert box.git.remote_get("work", "origin") == "/home/user/origin.git"
    finally:
        assert box.kill()


BOOT = "cat /proc/sys/kernel/random/boot_id"


def pausing():
    box = Sandbox.create(timeout=DAY)
    try:
        boot = box.commands.run(BOOT).stdout
        assert box.commands.run(BOOT, user="root").stdout == boot
        program = box.commands.run("sleep 100000", background=True, timeout=0)
        program.disconnect()
        idle(box)
        assert box.commands.run(BOOT).stdout == boot
        assert box.pause() and box.get_info().state == SandboxState.PAUSED
        assert box.pause() is False
        assert box.connect(timeout=DAY).commands.run(BOOT).stdout == boot
        assert program.pid in [process.pid for process in box.commands.list()]
        assert box.pause(keep_memory=False)
        box.connect(timeout=DAY)
        cold = box.commands.run(BOOT).stdout
        assert cold != boot and len(cold) == 37, cold
        assert program.pid not in [process.pid for process in box.commands.list()]
        if takes(Sandbox.connect, "on_resume"):
            assert box.pause()
            box.connect(timeout=DAY, on_resume="reboot")
            assert box.commands.run(BOOT).stdout not in (boot, cold)
        assert box.pause()
    finally:
        assert box.kill()

    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    with Sandbox.create(timeout=60, lifecycle=lifecycle) as box:
        about = box.get_info().lifecycle
        assert (about["on_timeout"], about["auto_resume"]) == ("pause", True), about
        advance(60)
        assert box.get_info().state == SandboxState.PAUSED
        assert box.files.write("woken", "by traffic") and box.get_info().state == SandboxState.RUNNING


def figures():
    box = Sandbox.create(timeout=DAY)
    try:
        begun = box.get_info().started_at
        for _ in range(600):
            if len(box.get_metrics()) > 1:
                break
            time.sleep(0.05)
        [first, second, *_] = box.get_metrics()
        assert first.timestamp <= second.timestamp and second.mem_total > second.mem_used > 0
        idle(box)
        # Those from before the freeze are still there, and asking for them woke nothing.
        assert box.get_metrics()[0] == first
        assert status_of(box) == "frozen"
        hour = datetime.timedelta(hours=1)
        early = box.get_metrics(start=begun - hour, end=begun + hour / 2)
        assert first in early
        assert box.get_metrics(start=begun + 2 * hour) == []
        assert box.get_metrics(end=begun - hour) == []
        _, logs = api("GET", f"/v2/sandboxes/{box.sandbox_id}/logs?direction=backward&limit=1")
        assert len(logs["logs"]) == 1 and logs["logs"][0]["level"] == "info", logs
    finally:
        assert box.kill()


def network():
    box = Sandbox.create(timeout=DAY, network={"allow_public_traffic": False})
    try:
        serve = "mkdir -p site && cd site && echo inside > index.html && exec python3 -m http.server 8000"
        box.commands.run(serve, background=True, timeout=0).disconnect()
        token = box.traffic_access_token
        assert token

        def visit(**more):
            own = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000", **more}
            request = urllib.request.Request(URL + "/", headers=own)
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        for _ in range(200):
            if visit(**{"e2b-traffic-access-token": token}) == (200, "inside\n"):
                break
            time.sleep(0.02)
        assert visit()[0] == 403
        assert visit(**{"e2b-traffic-access-token": "wrong"})[0] == 403
        idle(box)
        assert visit(**{"e2b-traffic-access-token": token}) == (200, "inside\n")
    finally:
        assert box.kill()


def cut_off():
    """A kill under an open stream, an open watch and a transfer."""
    box = Sandbox.create(timeout=600)
    program = box.commands.run("sleep 100000", background=True, timeout=0)
    started = threading.Event()

    def kill():
        started.wait()
        assert Sandbox.kill(box.sandbox_id)

    killer = threading.Thread(target=kill)
    killer.start()
    started.set()
    error = raises(SandboxException, program.wait)
    killer.join()
    assert not isinstance(error, CommandExitException), error
    raises(SandboxException, lambda: box.files.read("/etc/passwd"))
    raises(SandboxException, lambda: box.files.list("/"))


run_parts(globals())

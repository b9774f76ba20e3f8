"""A day with the synchronous SDK: what its documentation shows, on a server that freezes idle boxes."""

import json
import os
import threading
import time
import urllib.error
import urllib.request

from e2b import CommandExitException, Sandbox, SandboxQuery, SandboxState
from e2b.exceptions import NotFoundException, SandboxException, TimeoutException

from ours import advance, api, raises, run_parts, status_of


def commands():
    box = Sandbox.create(timeout=3600, envs={"COLOUR": "blue"}, metadata={"part": "commands"})
    try:
        assert box.is_running()
        result = box.commands.run("echo hello; echo oops >&2")
        assert (result.stdout, result.stderr, result.exit_code) == ("hello\n", "oops\n", 0)
        assert box.commands.run("echo $COLOUR $MORE", envs={"MORE": "x"}).stdout == "blue x\n"
        assert box.commands.run("whoami; pwd").stdout == "user\n/home/user\n"
        assert box.commands.run("whoami", user="root").stdout == "root\n"
        assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
        failed = raises(CommandExitException, lambda: box.commands.run("echo bad; exit 3"))
        assert (failed.exit_code, failed.stdout) == (3, "bad\n")
        raises(TimeoutException, lambda: box.commands.run("sleep 30", timeout=1))

        said = []
        run = box.commands.run(
            "read line; echo got $line; sleep 1000", background=True, stdin=True, timeout=0
        )
        assert run.pid in [process.pid for process in box.commands.list()]
        box.commands.send_stdin(run.pid, "word\n")
        for stdout, _, _ in run:
            said.append(stdout or "")
            if "got word" in "".join(said):
                break
        assert box.commands.kill(run.pid)
        raises(CommandExitException, run.wait)
        assert not box.commands.kill(run.pid)

        git = box.commands.run("git init -q r && cd r && git status --porcelain && git branch --show-current")
        assert git.exit_code == 0
    finally:
        assert box.kill()
    assert not box.kill()
    assert not box.is_running()
    raises(SandboxException, lambda: box.commands.run("true"))


def lists():
    mine = {"suite": "list s&x", "n": "1"}
    boxes = [Sandbox.create(timeout=600, metadata=mine) for _ in range(3)]
    try:
        ids = {box.sandbox_id for box in boxes}
        pages = Sandbox.list(query=SandboxQuery(metadata=mine), limit=2)
        first = pages.next_items()
        assert len(first) == 2 and pages.has_next
        second = pages.next_items()
        assert len(second) == 1 and not pages.has_next
        assert {info.sandbox_id for info in first + second} == ids
        none = Sandbox.list(query=SandboxQuery(metadata={"suite": "other"}))
        assert none.next_items() == []
        boxes[0].pause()
        paused = Sandbox.list(query=SandboxQuery(metadata=mine, state=[SandboxState.PAUSED]))
        assert [info.sandbox_id for info in paused.next_items()] == [boxes[0].sandbox_id]
        info = boxes[1].get_info()
        assert info.metadata == mine and info.template_id == "base"
        assert (info.end_at - info.started_at).total_seconds() == 600
        boxes[1].set_timeout(60)
        assert (boxes[1].get_info().end_at - info.started_at).total_seconds() == 60
        Sandbox.connect(boxes[1].sandbox_id, timeout=30)
        assert (boxes[1].get_info().end_at - info.started_at).total_seconds() == 60
        Sandbox.connect(boxes[1].sandbox_id, timeout=900)
        assert (boxes[1].get_info().end_at - info.started_at).total_seconds() == 900
    finally:
        for box in boxes:
            assert box.kill()


def ends():
    # Everything below is decided by the server's clock, which stands still but for `advance`.
    short = Sandbox.create(timeout=60)
    advance(59)
    assert short.is_running()
    advance(1)
    assert not short.is_running()
    assert api("GET", f"/sandboxes/{short.sandbox_id}")[0] == 404
    at_once = Sandbox.create(timeout=60)
    at_once.set_timeout(0)
    assert not at_once.is_running()
    status, error = api("POST", "/v2/sandboxes", {"templateID": "nothing-like-it"})
    assert status == 404 and set(error) == {"code", "message"}, error
    status, error = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": -1})
    assert status == 400 and "timeout" in error["message"], error
    status, error = api("GET", "/volumes")
    assert status == 501 and error["code"] == 501, error
    assert Sandbox.create(timeout=60).kill()


def pauses():
    box = Sandbox.create(timeout=300)
    boot = box.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
    run = box.commands.run("sleep 100000", background=True, timeout=0)
    token = box.get_info()
    box.pause()
    assert box.get_info().state == SandboxState.PAUSED
    assert not box.is_running()
    raises(SandboxException, lambda: box.commands.run("true"))
    # A box is kept while it is paused, whatever its end was.
    advance(40 * 24 * 3600)
    assert box.get_info().state == SandboxState.PAUSED
    again = Sandbox.connect(box.sandbox_id, timeout=120)
    assert again.sandbox_id == box.sandbox_id
    assert again.commands.run("cat /proc/sys/kernel/random/boot_id").stdout == boot
    assert run.pid in [process.pid for process in again.commands.list()]
    advance(119)
    assert again.is_running()
    again.pause()
    assert box.kill()
    assert api("GET", f"/sandboxes/{box.sandbox_id}")[0] == 404


def files_only():
    status, made = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300})
    assert status == 201, made
    box = Sandbox.connect(made["sandboxID"], timeout=300)
    run = box.commands.run("sleep 100000", background=True, timeout=0)
    box.commands.run("echo kept > kept; sync")
    status, error = api("POST", f"/sandboxes/{box.sandbox_id}/pause", {"memory": False})
    assert status == 204, error
    again = Sandbox.connect(box.sandbox_id, timeout=300)
    assert again.commands.run("cat kept").stdout == "kept\n"
    # It booted anew, on its files.
    assert run.pid not in [process.pid for process in again.commands.list()]
    assert again.kill()


def auto():
    body = {
        "templateID": "base",
        "timeout": 60,
        "autoPause": True,
        "autoResume": {"enabled": True},
    }
    status, made = api("POST", "/v2/sandboxes", body)
    assert status == 201, made
    box = Sandbox.connect(made["sandboxID"], timeout=60)
    advance(60)
    assert box.get_info().state == SandboxState.PAUSED
    # Any traffic wakes it, for at least five minutes.
    assert box.commands.run("echo awake").stdout == "awake\n"
    assert box.get_info().state == SandboxState.RUNNING
    advance(299)
    assert box.get_info().state == SandboxState.RUNNING
    advance(1)
    assert box.get_info().state == SandboxState.PAUSED
    assert box.kill()


def idles():
    box = Sandbox.create(timeout=4 * 3600)
    run = box.commands.run("sleep 100000", background=True, timeout=0)
    # A stream that is open is a call under way: it holds the box.
    advance(3600)
    assert status_of(box) == "ready"
    run.disconnect()
    box.commands.run("echo before > before")
    advance(3600)
    assert status_of(box) == "frozen", status_of(box)
    # Which nobody sees through this dialect.
    assert box.get_info().state == SandboxState.RUNNING
    assert [b.sandbox_id for b in Sandbox.list().next_items()] == [box.sandbox_id]
    assert status_of(box) == "frozen"
    assert box.commands.run("cat before").stdout == "before\n"
    assert run.pid in [process.pid for process in box.commands.list()]
    assert status_of(box) == "ready"
    # Frozen or not, its end comes.
    advance(2 * 3600)
    assert not box.is_running()


def kills():
    box = Sandbox.create(timeout=600)
    run = box.commands.run("sleep 100000", background=True, timeout=0)
    threading.Timer(0.5, box.kill).start()
    raises(SandboxException, lambda: run.wait())


def files():
    box = Sandbox.create(timeout=600)
    try:
        box.files.write("notes/a.txt", "hello")
        assert box.files.read("notes/a.txt") == "hello"
        assert box.files.exists("/home/user/notes/a.txt")
        assert [entry.name for entry in box.files.list("notes")] == ["a.txt"]
        assert box.files.make_dir("made/deep") and not box.files.make_dir("made/deep")
        box.files.rename("notes/a.txt", "notes/b.txt")
        assert not box.files.exists("notes/a.txt")
        box.files.remove("notes")
        raises(NotFoundException, lambda: box.files.read("notes/b.txt"))
        blob = os.urandom(1 << 20)
        box.files.write("blob", blob)
        assert bytes(box.files.read("blob", format="bytes")) == blob
        watch = box.files.watch_dir("made")
        box.files.write("made/new", "x")
        names = []
        for _ in range(100):
            names += [event.name for event in watch.get_new_events()]
            if "new" in names:
                break
        assert "new" in names, names
        watch.stop()
        # Links carry a signature, and nothing else that names the box.
        with urllib.request.urlopen(box.download_url("blob")) as answer:
            assert answer.read() == blob
        wrong = box.download_url("blob").replace("signature=v1_", "signature=v1_A")
        error = raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(wrong))
        assert error.code in (401, 403), error.code
    finally:
        assert box.kill()


def ptys():
    from e2b import PtySize

    box = Sandbox.create(timeout=600)
    try:
        pty = box.pty.create(PtySize(rows=24, cols=80), timeout=0)
        box.pty.resize(pty.pid, PtySize(rows=30, cols=100))
        box.pty.send_stdin(pty.pid, b"stty size; echo 'do''ne'\n")
        seen = b""
        for _, _, data in pty:
            seen += data or b""
            if b"done" in seen:
                break
        assert b"30 100" in seen, seen
        assert box.pty.kill(pty.pid)
    finally:
        assert box.kill()


def metrics():
    box = Sandbox.create(timeout=600)
    try:
        # Samples come by the machine's time, every five seconds.
        for _ in range(60):
            samples = box.get_metrics()
            if samples:
                break
            time.sleep(0.5)
        assert samples[0].mem_used > 0 and samples[0].cpu_count >= 1, samples
        assert samples[0].disk_total > 0
        status, many = api("GET", f"/sandboxes/metrics?sandbox_ids={box.sandbox_id}")
        assert status == 200 and box.sandbox_id in many["sandboxes"], many
        status, logs = api("GET", f"/sandboxes/{box.sandbox_id}/logs")
        assert status == 200 and json.loads(logs["logs"][0]["line"])["logger"] == "lifecycle"
    finally:
        assert box.kill()


def network():
    def has_way_out():
        return "eth0" in box.commands.run("cat /proc/net/dev").stdout

    box = Sandbox.create(timeout=3600, allow_internet_access=False)
    try:
        assert not has_way_out()
        box.update_network({"allow_out": ["192.0.2.7"], "deny_out": ["0.0.0.0/0"]})
        assert has_way_out()
        advance(700)
        assert status_of(box) == "frozen"
        assert has_way_out()
        box.update_network({"allow_internet_access": False})
        assert not has_way_out()
        box.update_network({})
        assert has_way_out()
        raises(SandboxException, lambda: box.update_network({"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"]}))
    finally:
        assert box.kill()


# Counts on in its memory, and says how far it is in a file.
COUNT = "bash -c 'while :; do n=$((n + 1)); echo $n >/tmp/new && mv /tmp/new /tmp/n; sleep 0.02; done'"


def counted(box, more_than):
    until = f"until [ \"$(cat /tmp/n 2>/dev/null || echo 0)\" -gt {more_than} ]; do sleep 0.02; done; cat /tmp/n"
    return int(box.commands.run(until).stdout)


def snapshots():
    box = Sandbox.create(timeout=3600, envs={"COLOUR": "blue"})
    boxes = [box]
    try:
        box.files.write("mark", "before")
        box.commands.run(COUNT, background=True)
        before = counted(box, 10)
        snapshot = box.create_snapshot()
        assert box.is_running()
        assert box.files.read("mark") == "before"
        counted(box, before)
        box.files.write("mark", "after")
        for _ in range(2):
            new = Sandbox.create(snapshot.snapshot_id, timeout=600)
            boxes.append(new)
            assert new.files.read("mark") == "before"
            assert new.commands.run("echo $COLOUR").stdout == "blue\n"
            counted(new, before)
        assert box.files.read("mark") == "after"
        named = api("POST", f"/sandboxes/{box.sandbox_id}/snapshots", {"name": "mine:v1", "memory": False})
        assert named[0] == 201 and named[1]["names"] == ["default/mine:v1"], named
        listed = Sandbox.list_snapshots().next_items()
        assert [it.snapshot_id for it in listed] == [named[1]["snapshotID"], snapshot.snapshot_id], listed
        own = box.list_snapshots(limit=1)
        assert len(own.next_items()) == 1 and own.has_next
        cold = Sandbox.create("mine:v1", timeout=600)
        boxes.append(cold)
        assert cold.files.read("mark") == "after"
        assert cold.commands.run("test ! -e /tmp/n").exit_code == 0
        for it in listed:
            assert Sandbox.delete_snapshot(it.snapshot_id)
            assert not Sandbox.delete_snapshot(it.snapshot_id)
        assert not Sandbox.list_snapshots().next_items()
        status, error = api("POST", "/v2/sandboxes", {"templateID": snapshot.snapshot_id})
        assert status == 404, error
    finally:
        for box in boxes:
            assert box.kill()


def forks():
    box = Sandbox.create(timeout=3600, metadata={"part": "forks"})
    boxes = [box]
    try:
        box.files.write("mark", "before")
        box.commands.run(COUNT, background=True)
        before = counted(box, 10)
        boxes += box.fork(count=2, timeout=600)
        ids = {it.sandbox_id for it in boxes}
        assert len(ids) == 3
        for it in boxes:
            counted(it, before)
            it.files.write("mark", it.sandbox_id)
        for it in boxes:
            assert it.files.read("mark") == it.sandbox_id
        # The key of one is no key of another.
        tokens = {api("GET", f"/sandboxes/{id}")[1]["envdAccessToken"] for id in ids}
        assert len(tokens) == 3
        assert boxes[1].get_info().metadata == {"part": "forks"}
        assert not Sandbox.list_snapshots().next_items()
        raises(NotFoundException, lambda: Sandbox.fork("a" * 20))
        status, error = api("POST", f"/sandboxes/{box.sandbox_id}/fork", {"count": 21})
        assert status == 400, error
    finally:
        for box in boxes:
            assert box.kill()


run_parts(globals())

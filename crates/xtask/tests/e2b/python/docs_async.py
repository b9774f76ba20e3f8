"""What the documentation of the asynchronous SDK shows, part by part, with an idle freeze in the middle of each."""

import asyncio
import inspect

from e2b import AsyncSandbox, CommandExitException, FilesystemEventType, PtySize, SandboxQuery, SandboxState
from e2b.exceptions import NotFoundException, SandboxException, TimeoutException

from ours import api, idle, run_parts, status_of

DAY = 24 * 3600


def part(act):
    """A part of the program, with a box of its own."""

    async def with_a_box():
        async with await AsyncSandbox.create(timeout=DAY, envs={"COLOUR": "blue"}, metadata={"part": act.__name__}) as box:
            await act(box)
        assert not await box.is_running()

    return lambda: asyncio.run(with_a_box())


async def raises(kind, act):
    try:
        await act
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


async def heard(queue, wanted):
    """What comes until it holds what is waited for."""
    seen = []
    while not any(wanted(item) for item in seen):
        seen.append(await asyncio.wait_for(queue.get(), 30))
    return seen


@part
async def sandboxes(box):
    info = await box.get_info()
    assert (info.template_id, info.state, info.metadata) == ("base", SandboxState.RUNNING, {"part": "sandboxes"})
    await box.set_timeout(2 * DAY)
    idle(box)
    pages = AsyncSandbox.list(query=SandboxQuery(metadata={"part": "sandboxes"}))
    assert [info.sandbox_id for info in await pages.next_items()] == [box.sandbox_id]
    assert status_of(box) == "frozen"
    same = await AsyncSandbox.connect(box.sandbox_id)
    assert (await same.commands.run("echo $COLOUR")).stdout == "blue\n"
    others = await asyncio.gather(*(AsyncSandbox.create(timeout=60) for _ in range(3)))
    assert all(await asyncio.gather(*(other.kill() for other in others)))
    if "idempotency_key" in inspect.signature(AsyncSandbox.create).parameters:
        asked = (AsyncSandbox.create(timeout=60, idempotency_key="together") for _ in range(4))
        one = await asyncio.gather(*asked)
        assert len({it.sandbox_id for it in one}) == 1
        assert await one[0].kill()


@part
async def commands(box):
    out = asyncio.Queue()
    counter = await box.commands.run(
        "n=0; while sleep 0.01; do n=$((n + 1)); echo $n; done", background=True, timeout=0, on_stdout=out.put
    )
    [first, *_] = await heard(out, bool)
    await counter.disconnect()
    idle(box)
    out = asyncio.Queue()
    again = await box.commands.connect(counter.pid, timeout=0, on_stdout=out.put)
    later = await heard(out, bool)
    assert int(later[0].split()[0]) > int(first.split()[0])
    assert await again.kill()
    await raises(CommandExitException, again.wait())
    runs = [box.commands.run(f"sleep 0.0{n}; echo {n}") for n in range(8)]
    said = [result.stdout for result in await asyncio.gather(*runs)]
    assert said == [f"{n}\n" for n in range(8)]
    cat = await box.commands.run("cat", background=True, stdin=True)
    await box.commands.send_stdin(cat.pid, "line\n")
    await box.commands.close_stdin(cat.pid)
    assert (await cat.wait()).stdout == "line\n"
    await raises(TimeoutException, box.commands.run("sleep 60", timeout=1))


@part
async def files(box):
    await box.files.write_files([{"path": f"many/{n}", "data": str(n)} for n in range(50)])
    idle(box)
    read = [await box.files.read(f"many/{n}") for n in (0, 49)]
    assert read == ["0", "49"]
    assert len(await box.files.list("many")) == 50
    blob = bytes(range(256)) * 4096
    await box.files.write("blob", blob, gzip=True)
    stream = await box.files.read("blob", format="stream")
    assert b"".join([piece async for piece in stream]) == blob
    assert (await box.files.get_info("blob")).size == len(blob)
    await box.files.rename("blob", "moved")
    assert not await box.files.exists("blob")
    await box.files.remove("moved")
    await raises(NotFoundException, box.files.read("moved"))


@part
async def watching(box):
    await box.files.make_dir("seen")
    events, exits = asyncio.Queue(), asyncio.Queue()
    watch = await box.files.watch_dir("seen", on_event=events.put, on_exit=exits.put, timeout=0, recursive=True)
    await box.files.write("seen/a", "1")
    await heard(events, lambda event: event.type == FilesystemEventType.WRITE)
    # A watch is a stream: it holds its box awake for as long as it is there.
    await box.files.make_dir("seen/below")
    await box.files.write("seen/below/b", "2")
    await heard(events, lambda event: event.name == "below/b")
    await watch.stop()
    idle(box)
    again = await box.files.watch_dir("seen", on_event=events.put, timeout=0)
    await box.files.remove("seen/a")
    await heard(events, lambda event: (event.name, event.type) == ("a", FilesystemEventType.REMOVE))
    await again.stop()


@part
async def ptys(box):
    out = asyncio.Queue()
    pty = await box.pty.create(PtySize(rows=24, cols=80), on_data=out.put, timeout=0)
    await box.pty.send_stdin(pty.pid, b"held=ye''s; echo rea''dy\n")
    await heard(out, lambda data: b"ready" in data)
    await pty.disconnect()
    idle(box)
    out = asyncio.Queue()
    again = await box.pty.connect(pty.pid, on_data=out.put, timeout=0)
    await box.pty.resize(pty.pid, PtySize(rows=30, cols=90))
    await box.pty.send_stdin(pty.pid, b"stty size; echo held=$held end''ed\n")
    said = b"".join(await heard(out, lambda data: b"ended" in data))
    assert b"30 90" in said and b"held=yes" in said, said
    assert await box.pty.kill(pty.pid)
    await raises(CommandExitException, again.wait())


@part
async def git(box):
    await box.git.init("origin.git", bare=True, initial_branch="main")
    await box.git.configure_user("Ann", "ann@example.com")
    await box.git.init("work", initial_branch="main")
    await box.files.write("work/README.md", "# one\n")
    await box.git.add("work")
    await box.git.commit("work", "first")
    await box.git.remote_add("work", "origin", "/home/user/origin.git")
    await box.git.push("work", remote="origin", branch="main")
    idle(box)
    await box.git.clone("/home/user/origin.git", path="clone")
    assert (await box.git.status("clone")).is_clean
    assert (await box.git.branches("clone")).current_branch == "main"
    assert await box.files.read("clone/README.md") == "# one\n"


@part
async def pausing(box):
    program = await box.commands.run("sleep 100000", background=True, timeout=0)
    await program.disconnect()
    idle(box)
    await box.pause()
    assert (await box.get_info()).state == SandboxState.PAUSED
    await raises(SandboxException, box.commands.run("true"))
    await box.connect(timeout=DAY)
    assert program.pid in [process.pid for process in await box.commands.list()]
    snapshot = await box.create_snapshot()
    copy = await AsyncSandbox.create(snapshot.snapshot_id, timeout=60)
    assert program.pid in [process.pid for process in await copy.commands.list()]
    assert await copy.kill() and await AsyncSandbox.delete_snapshot(snapshot.snapshot_id)
    forks = await box.fork(count=2, timeout=60)
    assert all(await asyncio.gather(*(fork.kill() for fork in forks)))


@part
async def figures(box):
    for _ in range(600):
        if samples := await box.get_metrics():
            break
        await asyncio.sleep(0.05)
    idle(box)
    assert (await box.get_metrics())[0] == samples[0]
    status, logs = api("GET", f"/sandboxes/{box.sandbox_id}/logs")
    assert status == 200 and logs["logs"], logs


run_parts(globals())

"""The same ways with the asynchronous SDK, several boxes at a time."""

import asyncio

from e2b import AsyncSandbox, CommandExitException, SandboxState

from ours import run_parts


async def commands():
    box = await AsyncSandbox.create(timeout=600)
    try:
        result = await box.commands.run("echo hello")
        assert (result.stdout, result.exit_code) == ("hello\n", 0)
        try:
            await box.commands.run("exit 4")
            raise AssertionError("it did not fail")
        except CommandExitException as error:
            assert error.exit_code == 4
        parts = []
        run = await box.commands.run(
            "for n in 1 2 3; do echo $n; done", background=True, on_stdout=parts.append
        )
        assert (await run.wait()).stdout == "1\n2\n3\n"
        assert "".join(parts) == "1\n2\n3\n"
        await box.pause()
        assert (await box.get_info()).state == SandboxState.PAUSED
        again = await AsyncSandbox.connect(box.sandbox_id, timeout=600)
        assert (await again.commands.run("echo back")).stdout == "back\n"
    finally:
        assert await box.kill()


async def together():
    boxes = await asyncio.gather(*(AsyncSandbox.create(timeout=600) for _ in range(3)))
    runs = (box.commands.run(f"echo {n}") for n, box in enumerate(boxes))
    said = [result.stdout for result in await asyncio.gather(*runs)]
    assert said == ["0\n", "1\n", "2\n"], said
    assert all(await asyncio.gather(*(box.kill() for box in boxes)))


async def files():
    box = await AsyncSandbox.create(timeout=600)
    try:
        seen = asyncio.Event()
        await box.files.make_dir("watched")
        watch = await box.files.watch_dir(
            "watched", on_event=lambda event: event.name == "new" and seen.set()
        )
        await box.files.write("watched/new", "text")
        await asyncio.wait_for(seen.wait(), 30)
        await watch.stop()
        assert await box.files.read("watched/new") == "text"
    finally:
        assert await box.kill()


run_parts({part.__name__: lambda part=part: asyncio.run(part()) for part in (commands, together, files)})

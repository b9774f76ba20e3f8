"""An agent's day over `icebox mcp`, with the official Python SDK: sync a git project, build, run its server in the
background, freeze, go on, fetch the result, and hand the box over to another conversation.

Called with the program and a git project. The environment says where the server is."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys

from mcp import Client, StdioServerParameters

PROGRAM, PROJECT = sys.argv[1], pathlib.Path(sys.argv[2])


def adapter():
    environment = {name: os.environ[name] for name in ("ICEBOX_URL", "ICEBOX_DATA", "PATH")}
    return Client(StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment))


async def call(client, tool, fails=False, **arguments):
    result = await client.call_tool(tool, arguments)
    said = [item.text for item in result.content]
    assert bool(result.is_error) == fails, (tool, arguments, said)
    return said[0] if fails else json.loads(said[0])


async def takes_over(box):
    async with adapter() as client:
        shown = await call(client, "sandbox_status", id=box)
        assert "thisConversation" not in shown["agent"], shown["agent"]
        assert shown["goal"] == "a day's work", shown
        assert any(step.get("note") == "serve the result" for step in shown["steps"]), shown["steps"]
        assert any(step["kind"] == "sync" for step in shown["steps"]), shown["steps"]
        assert not any("psbx-sync" in step["summary"] for step in shown["steps"]), shown["steps"]
        done = await call(client, "sandbox_exec", id=box, cmd="cat app/out/result", note="look at the result")
        assert done["stdout"] == "built from one\n", done
        shown = await call(client, "sandbox_status", id=box, fields=["agent"])
        assert shown["agent"]["thisConversation"] is True, shown


async def day():
    async with adapter() as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"sandbox_start", "sandbox_sync", "sandbox_pull"} <= tools, tools
        refused = await call(client, "sandbox_exec", True, id="nosuch", cmd="true", note="x")
        assert "no box `nosuch`" in refused, refused
        box = (await call(client, "sandbox_start", goal="a day's work", name="day"))["id"]

        plan = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app", dryRun=True)
        assert plan["dryRun"] and (plan["files"], plan["sentFiles"]) == (4, 4), plan
        sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app")
        assert (sent["files"], sent["changedOnBox"]) == (4, 4), sent
        again = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app")
        assert (again["changedOnBox"], again["sentFiles"], again["uploadedBytes"]) == (0, 0, 0), again
        # Only what differs goes: by its content, its bit for running it, and where it leads.
        (PROJECT / "one").chmod(0o755)
        (PROJECT / "new").symlink_to("one")
        part = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app")
        assert (part["sentFiles"], part["changedOnBox"], part["sentPaths"]) == (2, 2, ["new", "one"]), part
        assert part["uncommitted"]["paths"] == ["one", "new"], part
        (PROJECT / "new").unlink()
        await call(client, "sandbox_exec", id=box, cmd="rm app/new; chmod -x app/one", note="as it was")
        (PROJECT / "one").chmod(0o644)
        for wrong, said in [
            ({"dest": "../app"}, "`dest` must be"),
            ({"dest": "/etc"}, "`dest` must be"),
            ({"localPath": str(PROJECT / "nosuch")}, "No such file"),
            ({"commit": "nosuch"}, "knows no commit"),
            ({"nosuch": 1}, "nosuch"),
            ({"maxMB": 0}, "`maxMB` must be"),
            ({"exclude": ["["]}, "`exclude`"),
        ]:
            arguments = {"id": box, "localPath": str(PROJECT), "dest": "app"} | wrong
            refused = await call(client, "sandbox_sync", True, **arguments)
            assert said in refused, (wrong, refused)

        done = await call(client, "sandbox_exec", id=box, cwd="app", cmd="sh build.sh", note="build")
        assert done["exitCode"] == 0, done
        serve = "python3 -m http.server 8080 --bind 127.0.0.1"
        begun = await call(
            client, "sandbox_exec", id=box, cwd="app/out", cmd=serve, background=True, note="serve the result"
        )
        fetch = "curl -sS --retry 20 --retry-delay 1 --retry-connrefused 127.0.0.1:8080/result"
        done = await call(client, "sandbox_exec", id=box, cmd=fetch, note="ask it")
        assert done["stdout"] == "built from one\n", done
        frozen = await call(client, "sandbox_freeze", id=box)
        assert frozen["status"] == "frozen", frozen
        done = await call(client, "sandbox_exec", id=box, cmd=fetch, note="ask it after lunch")
        assert done["stdout"] == "built from one\n", done
        procs = (await call(client, "sandbox_procs", id=box))["procs"]
        assert begun["bgId"] in [proc["bgId"] for proc in procs], procs

        # What was deleted here goes there only when that is asked for; what was made there stays.
        (PROJECT / "old").unlink()
        sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app")
        assert sent["staleInDest"]["paths"] == ["old"], sent
        sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="app", prune=True)
        assert sent["pruned"] == 1, sent
        done = await call(client, "sandbox_exec", id=box, cmd="ls app app/out", note="see what is there")
        assert "old" not in done["stdout"].split() and "result" in done["stdout"].split(), done
        subprocess.run(["git", "-C", str(PROJECT), "checkout", "-q", "old"], check=True)
        sent = await call(client, "sandbox_sync", id=box, localPath=str(PROJECT), dest="clean", commit="HEAD")
        assert sent["changedOnBox"] == 4 and len(sent["commitSha"]) == 40, sent

        target = PROJECT.parent / "pulled"
        got = await call(client, "sandbox_pull", id=box, path="app/out", localPath=str(target))
        assert got["extracted"] and (target / "result").read_text() == "built from one\n", got
        got = await call(client, "sandbox_pull", id=box, path="app/out/result", localPath=str(target) + "/")
        assert not got["extracted"] and got["bytes"] == 15, got
        refused = await call(
            client, "sandbox_pull", True, id=box, path="app", localPath=str(PROJECT), clean=True
        )
        assert "does not replace" in refused, refused
        refused = await call(client, "sandbox_pull", True, id=box, path="/etc/passwd", localPath=str(target))
        assert "below /work" in refused, refused

        await takes_over(box)
        listed = await call(client, "sandbox_list")
        assert "thisConversation" not in listed["boxes"][0]["agent"], listed
        # The other conversation has left; the box says so until somebody uses it.
        assert listed["boxes"][0]["agent"]["state"] == "left", listed
        await call(client, "sandbox_stop", id=box)
        gone = await call(client, "sandbox_exec", True, id=box, cmd="true", note="too late")
        assert "was stopped" in gone, gone
    print("the day is over")


asyncio.run(day())

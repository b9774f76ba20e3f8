"""An adapter whose server is killed and started again in the middle of a call: the command goes on in its box, the call
gets its result, and nothing runs twice.

Called with the program. Says `restart now` when the server is to be restarted; what restarts it is the caller."""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters

PROGRAM = sys.argv[1]


def adapter():
    environment = {name: os.environ[name] for name in ("ICEBOX_URL", "ICEBOX_DATA", "PATH")}
    return Client(StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment))


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    said = [item.text for item in result.content]
    assert not result.is_error, (tool, arguments, said)
    return json.loads(said[0])


async def reconnect():
    async with adapter() as client, adapter() as other:
        box = (await call(client, "sandbox_start", goal="reconnect"))["id"]
        once = "echo ran >> once; while [ ! -e go ]; do sleep 0.1; done; wc -l < once"
        running = asyncio.create_task(call(client, "sandbox_exec", id=box, cmd=once, note="run once"))
        waited = {"action": "wait", "until": "ready", "readyPort": 8080, "waitSec": 120}
        serve = "while [ ! -e go ]; do sleep 0.1; done; exec python3 -m http.server 8080 --bind 127.0.0.1"
        begun = await call(other, "sandbox_exec", id=box, cmd=serve, note="serve later", background=True)
        ready = asyncio.create_task(call(other, "sandbox_procs", id=box, bgId=begun["bgId"], **waited))
        async with adapter() as third:
            procs = []
            while len(procs) < 2:
                procs = (await call(third, "sandbox_procs", id=box))["procs"]
            print("restart now", flush=True)
            # Never sent while the server is down: it waits until one is there.
            await call(third, "sandbox_exec", id=box, cmd="sleep 1; touch go", note="let them go on")
        done = await running
        assert done["stdout"] == "1\n", done
        assert (await ready)["ready"] is True
        await call(client, "sandbox_stop", id=box)
    print("nothing ran twice")


asyncio.run(reconnect())

"""Words between a person and an agent over a connection that breaks: whatever answer is lost on its way, each message and
each line is there once.

Called with the program. The environment says where the server is."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.parse

from mcp import Client, StdioServerParameters

PROGRAM = sys.argv[1]
SERVER = urllib.parse.urlsplit(os.environ["ICEBOX_URL"])


class Cuts:
    """Stands between the adapter and the server. Of requests with the armed words it loses the answer, which the server has
    given."""

    def __init__(self):
        self.armed = None
        self.lost = 0

    async def passes(self, reader, writer):
        upstream_reader, upstream = await asyncio.open_connection(SERVER.hostname, SERVER.port)
        asked = b""

        async def there():
            nonlocal asked
            while data := await reader.read(65536):
                asked += data
                upstream.write(data)

        async def back():
            while data := await upstream_reader.read(65536):
                if self.armed and self.armed in asked:
                    # The whole answer was on its way, as far as the server knows.
                    self.armed = None
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()

        ways = [asyncio.ensure_future(there()), asyncio.ensure_future(back())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        writer.close()
        upstream.close()


def icebox(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    said = [item.text for item in result.content]
    assert not result.is_error, (tool, arguments, said)
    return json.loads(said[0]), said[1:]


def texts(fields):
    return [message["text"] for message in fields.get("fromHuman", [])]


async def words():
    cuts = Cuts()
    proxy = await asyncio.start_server(cuts.passes, "127.0.0.1", 0)
    url = "http://127.0.0.1:%d" % proxy.sockets[0].getsockname()[1]
    environment = {name: os.environ[name] for name in ("ICEBOX_DATA", "PATH")} | {"ICEBOX_URL": url}
    async with Client(StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment)) as client:
        box = (await call(client, "sandbox_start", goal="words"))[0]["id"]

        async def arrived(text):
            while True:
                listed = json.loads(await asyncio.to_thread(icebox, "tell", box, "--json"))
                if all(message.get("deliveredAt") for message in listed["messages"] if message["text"] == text):
                    return
                await asyncio.sleep(0.05)

        # The answer with the message is lost: the adapter asks again, and the message is in that.
        await asyncio.to_thread(icebox, "tell", box, "one")
        cuts.armed = b"sandbox_status"
        shown, lines = await call(client, "sandbox_status", id=box, fields=["goal"])
        assert texts(shown) == ["one"] and [line for line in lines if line.endswith("says: one")], (shown, lines)
        assert cuts.lost == 1
        await arrived("one")
        shown, lines = await call(client, "sandbox_status", id=box, fields=["goal"])
        assert texts(shown) == [] and lines == [], (shown, lines)

        # The answer to the confirmation is lost, and the server gives the message again at most: the client has it once.
        await asyncio.to_thread(icebox, "tell", box, "two")
        cuts.armed = b"/messages/received"
        seen = []
        while cuts.lost < 2 or not seen:
            done, _ = await call(client, "sandbox_exec", id=box, cmd="true", note="go on")
            seen += texts(done)
        for _ in range(3):
            shown, _ = await call(client, "sandbox_status", id=box, fields=["goal"])
            seen += texts(shown)
        assert seen == ["two"], seen
        await arrived("two")

        # A command and its message: neither twice.
        await asyncio.to_thread(icebox, "tell", box, "three")
        cuts.armed = b"sandbox_exec"
        done, _ = await call(client, "sandbox_exec", id=box, cmd="echo ran >> once; wc -l < once", note="run once")
        assert (done["stdout"], texts(done)) == ("1\n", ["three"]), done

        # A line of the agent.
        cuts.armed = b"sandbox_say"
        assert (await call(client, "sandbox_say", id=box, text="Nearly there."))[0]["ok"] is True
        assert cuts.lost == 4
        shown, _ = await call(client, "sandbox_status", id=box, fields=["steps"])
        said = [step["summary"] for step in shown["steps"] if step["kind"] == "say"]
        assert said == ["Nearly there."], said
        await call(client, "sandbox_stop", id=box)
    proxy.close()
    print("each word once")


asyncio.run(words())

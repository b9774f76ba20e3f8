"""However an adapter ends, its conversation leaves: by the end of its input, and by each signal that asks it to.

Called with the program. The environment says where the server is."""

import json
import signal
import subprocess
import sys

PROGRAM = sys.argv[1]


class Adapter:
    def __init__(self):
        self.child = subprocess.Popen([PROGRAM, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.ask("initialize", hello)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tell(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def ask(self, method, params):
        self.tell({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while True:
            message = json.loads(self.child.stdout.readline())
            if message.get("id") == 1:
                return message["result"]

    def call(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), result
        return json.loads(result["content"][0]["text"])


def ends():
    watcher = Adapter()
    box = watcher.call("sandbox_start", goal="endings")["id"]

    def look():
        # No use of the box, so that it stays the other conversation's.
        return watcher.call("sandbox_status", id=box, fields=["agent", "running"])

    for how in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, None):
        adapter = Adapter()
        # In the middle of a call: the command goes on.
        run = {"name": "sandbox_exec", "arguments": {"id": box, "cmd": "sleep 1000", "note": "go on"}}
        adapter.tell({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": run})
        while not look()["running"]["commands"]:
            pass
        assert look()["agent"]["state"] == "working", how
        if how is None:
            adapter.child.stdin.close()
        else:
            adapter.child.send_signal(how)
        assert adapter.child.wait(timeout=30) == 0, how
        left = look()
        assert left["agent"]["state"] == "left", (how, left)
        (command,) = left["running"]["commands"]
        watcher.call("sandbox_procs", id=box, action="stop", bgId=command["execId"], graceSec=0)
    watcher.call("sandbox_stop", id=box)
    watcher.child.stdin.close()
    assert watcher.child.wait(timeout=30) == 0
    print("all of them left")


ends()

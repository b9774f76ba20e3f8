"""What E2B's Python SDK takes, beside the same over plain HTTP in the same run. Says it as one line of JSON."""

import json
import os
import sys
import time

import httpx

from e2b import Sandbox

URL = os.environ["E2B_API_URL"]
ROUNDS = int(sys.argv[1])
MIB = 1 << 20
own = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {os.environ['E2B_API_KEY']}"}, timeout=60)
taken = {"create": [], "start": [], "run": [], "trip": [], "write": [], "read": []}


def timed(what, act):
    begun = time.perf_counter()
    result = act()
    taken[what].append((time.perf_counter() - begun) * 1e3)
    return result


def start():
    # An E2B box may reach the internet unless it says otherwise; the server of benchmarks lets others reach nothing.
    answer = own.post("/v1/boxes", json={"egress": {"mode": "open"}})
    answer.raise_for_status()
    return answer.json()["id"]


def starts():
    for _ in range(ROUNDS):
        timed("create", lambda: Sandbox.create(timeout=600)).kill()
        own.post(f"/v1/boxes/{timed('start', start)}/stop", json={}).raise_for_status()


def runs(box):
    for _ in range(10 * ROUNDS):
        timed("run", lambda: box.commands.run("true"))
        timed("trip", lambda: own.get("/healthz").raise_for_status())


def rss_kib(box):
    """Of the daemon in the box."""
    status = box.files.read("/proc/1/status")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def transfers(box):
    blob = os.urandom(64 * MIB)
    for _ in range(max(3, ROUNDS // 3)):
        timed("write", lambda: box.files.write("blob", blob))
        read = timed("read", lambda: box.files.read("blob", format="bytes"))
        assert len(read) == len(blob)
    assert bytes(read) == blob


starts()
box = Sandbox.create(timeout=3600)
try:
    runs(box)
    before = rss_kib(box)
    transfers(box)
    medians = {what: sorted(times)[len(times) // 2] for what, times in taken.items()}
    print(json.dumps({"ms": medians, "boxd_kib": [before, rss_kib(box)]}))
finally:
    box.kill()

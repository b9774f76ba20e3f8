"""What the programs share: requests of our own to the server, its clock, and boxes that freeze for being idle."""

import json
import os
import time
import urllib.error
import urllib.request

URL = os.environ["ICEBOX_URL"]
KEY = os.environ["E2B_API_KEY"]


def api(method, path, body=None, bearer=False):
    """A request of our own, for what the SDK has no call for."""
    request = urllib.request.Request(URL + path, method=method)
    if bearer:
        request.add_header("Authorization", f"Bearer {KEY}")
    else:
        request.add_header("X-API-Key", KEY)
    data = None if body is None else json.dumps(body).encode()
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, data) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def advance(seconds):
    status, _ = api("POST", "/v1/test/clock", {"advanceSec": seconds}, bearer=True)
    assert status == 200


def status_of(box):
    return api("GET", f"/v1/boxes/{box.sandbox_id}", bearer=True)[1]["status"]


def idle(box):
    """Lets it freeze for being idle. A stream that its client left a moment ago is still a call until the server sees that."""
    for _ in range(200):
        held = api("GET", f"/v1/boxes/{box.sandbox_id}", bearer=True)[1].get("freeze", {})
        if "at" in held:
            break
        time.sleep(0.02)
    # Background commands hold it for an hour after its last use.
    advance(3601)
    assert status_of(box) == "frozen", api("GET", f"/v1/boxes/{box.sandbox_id}", bearer=True)


def raises(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def run_parts(parts):
    """Runs the parts that the test asks for, by name."""
    for name in os.environ["E2B_RUN"].split(","):
        parts[name]()
        print(f"{name}: ok", flush=True)
    # All is said. What is not waited for here is how the interpreter takes itself apart under the threads of the SDK's
    # libraries, in which it has aborted.
    os._exit(0)

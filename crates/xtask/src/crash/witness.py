"""Runs in a box and holds what a freeze must not lose: memory, a loopback connection, a lock, a counter.

Answers on 127.0.0.1:7778: one line of JSON per connection, after looking at everything it holds.
"""
import fcntl
import hashlib
import json
import os
import socket
import threading
import time

blob = os.urandom(8 << 20)
digest = hashlib.sha256(blob).hexdigest()
born = os.urandom(8).hex()
count = 0

lock = open("/work/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)

listener = socket.create_server(("127.0.0.1", 7777))
near = socket.create_connection(("127.0.0.1", 7777))
far, _ = listener.accept()
far.sendall(b"sent before anything froze")


def tick():
    global count
    while True:
        count += 1
        time.sleep(0.01)


def lock_is_held():
    with open("/work/lock", "w") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def connection_works():
    token = os.urandom(16)
    far.sendall(token)
    return near.recv(16, socket.MSG_WAITALL) == token


first = near.recv(64)
threading.Thread(target=tick, daemon=True).start()
doors = socket.create_server(("127.0.0.1", 7778))
while True:
    door, _ = doors.accept()
    seen = {
        "born": born,
        "count": count,
        "memory": hashlib.sha256(blob).hexdigest() == digest,
        "first": first == b"sent before anything froze",
        "lock": lock_is_held(),
        "connection": connection_works(),
    }
    door.sendall(json.dumps(seen).encode() + b"\n")
    door.close()

"""A client that asks for nothing but a sign of life, again and again: how long it waited. A process of its own.

`pinger.py SOCKET`: says `ready`, pings once a millisecond until its stdin ends, and prints the longest wait in ms.
"""

from __future__ import annotations

import select
import socket
import sys
import time

PAUSE_S = 0.001
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def main(path: str) -> None:
    """Raises `TimeoutError` where the daemon does not answer."""
    longest, client = 0.0, socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(path)
    wait_of(client)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        longest = max(longest, wait_of(client))
    print(longest * 1000)


def wait_of(client: socket.socket) -> float:
    """Seconds from a question to the end of its answer."""
    began, answer = time.monotonic(), b""
    client.sendall(PING)
    while not answer.endswith(b"\n"):
        answer += client.recv(4096)
    return time.monotonic() - began


if __name__ == "__main__":
    main(sys.argv[1])

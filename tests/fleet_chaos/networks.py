"""A network for each box, joined by a bridge: what `make fleet-net` cuts. Needs `ip`, `unshare` and the right to use them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["HOSTS", "Networks", "enter", "refusal"]

HOSTS = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
"""Addresses of the nodes, on the bridge."""
INSIDE = "CLISUP_FLEET_NET"
"""Variable of the process that is inside a network and a mount table of its own."""


def ip(*words: str) -> None:
    """Run `ip`. Raises `CalledProcessError`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _unshare() -> list[str]:
    return ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def refusal() -> str:
    """Return why this machine cannot make networks, or "" if it can."""
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install iproute2 and util-linux"
    trial = "mount -t tmpfs none /run && ip link add name trial type bridge && ip netns add trial"
    done = subprocess.run([*_unshare(), "sh", "-c", trial], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no network of its own: {done.stderr.strip()[:200]}"


def enter(module: str) -> None:
    """Execute this module again in a network and a mount table of its own, which end with it."""
    if os.environ.get(INSIDE):
        return
    words = [sys.executable, "-m", module, *sys.argv[1:]]
    command = [*_unshare(), "sh", "-c", 'mount -t tmpfs none /run && ip link set lo up && exec "$@"', "sh", *words]
    os.environ[INSIDE] = "1"
    os.execvp(command[0], command)


class Networks:
    """Networks of the boxes. `cut` takes a box off the bridge, and `join` puts it back."""

    def __init__(self, boxes: Sequence[str]) -> None:
        ip("link", "add", "name", "fleet", "type", "bridge")
        for host in HOSTS:
            ip("address", "add", f"{host}/24", "dev", "fleet")
        ip("link", "set", "fleet", "up")
        for number, box in enumerate(boxes):
            ip("netns", "add", box)
            ip("link", "add", f"to-{box}", "type", "veth", "peer", "name", "eth0", "netns", box)
            ip("link", "set", f"to-{box}", "master", "fleet", "up")
            ip("-n", box, "address", "add", f"10.77.0.{11 + number}/24", "dev", "eth0")
            ip("-n", box, "link", "set", "lo", "up")
            ip("-n", box, "link", "set", "eth0", "up")

    def inside(self, box: str) -> list[str]:
        """Return the beginning of a command that runs in the box's network."""
        return ["ip", "netns", "exec", box]

    def cut(self, box: str) -> None:
        """Cut a box off. Its packets are lost, and no connection ends."""
        ip("link", "set", f"to-{box}", "down")

    def join(self, box: str) -> None:
        """End the cut."""
        ip("link", "set", f"to-{box}", "up")

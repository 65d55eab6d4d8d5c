"""Ground of a run: nodes, boxes and the members that only look or submit, in one directory."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from zygote import Zygote

from clisup.fleet.member import FleetMember, read_member
from clisup.fleet.setup.nodes import CLUSTER_OFFSET
from tests.fleet_chaos.box import Box, wait_for
from tests.fleet_chaos.nodes import LOOPBACK, Nodes, clisup, found_fleet

__all__ = ["BOXES", "Ground"]

BOXES = ("box1", "box2", "box3")
ROLES: dict[str, Sequence[str]] = {
    **dict.fromkeys(BOXES, ("worker", "observer")),
    "probe": ("worker",),
    "watcher": ("observer",),
    "ci": ("operator",),
}
PATIENCE_S = 120.0


class Ground:
    """Everything runs when the context is entered, and nothing when it is left. `inside` begins each agent's command."""

    def __init__(self, hosts: Sequence[str] = LOOPBACK, inside: dict[str, Sequence[str]] | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fc", dir="/tmp"))
        self._zygote = Zygote()
        files = found_fleet(self.root / "team", hosts, free_port(hosts), ROLES)
        self.nodes = Nodes(self.root / "team", hosts)
        self._files = files
        self.boxes = [Box(self.root, name, files[name], self._zygote, (inside or {}).get(name, ())) for name in BOXES]
        self.jobs_directory = self.root / "jobs"
        self.jobs_directory.mkdir()

    def member(self, name: str) -> FleetMember:
        """Return a member that this process may be."""
        return read_member(str(self._files[name]))

    def __enter__(self) -> Self:
        try:
            self.nodes.start()
            self._prepare()
            for box in self.boxes:
                box.start()
            for box in self.boxes:
                wait_for(box.socket)
        except BaseException:
            self.close()
            raise
        return self

    def _prepare(self) -> None:
        """Create the streams as soon as the nodes have a leader."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                clisup("fleet", "prepare", str(self._files["admin"]), "--gib", "2")
                return
            except AssertionError:
                if time.monotonic() > end:
                    raise
                time.sleep(1.0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def faults(self) -> list[str]:
        """Return what the logs of daemons and agents tell of faults of their own."""
        return [fault for box in self.boxes for fault in box.faults()]

    def close(self, *, keep: bool = False) -> None:
        """End everything, and remove the directory."""
        for box in self.boxes:
            box.close()
        self.nodes.close()
        self._zygote.close()
        if not keep:
            shutil.rmtree(self.root, ignore_errors=True)


def free_port(hosts: Sequence[str]) -> int:
    """Return a port that is free on all hosts, with the port of the nodes between themselves."""
    for port in range(24222, 25222, 10):
        try:
            for host in hosts:
                for number in (port, port + CLUSTER_OFFSET):
                    with socket.socket() as trial:
                        trial.bind((host, number))
            return port
        except OSError:
            continue
    raise AssertionError("no free port for the nodes")

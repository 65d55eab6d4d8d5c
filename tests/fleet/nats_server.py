"""A nats-server on loopback, in a directory of its own, for one test file: alone, or as the node of a fleet."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from clisup.errors import ClisupError
from clisup.fleet.member import FleetMember, Role, read_member
from clisup.fleet.nats_engine import connect_member
from clisup.fleet.setup.folder import add_member, found

PATIENCE_S = 60.0
SERVER = Path(sys.executable).with_name("nats-server")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


class _Killable:
    """Process of an engine."""

    _process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill the server as a power loss does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class FoundedNode(_Killable):
    """One node of a fleet, as `clisup fleet init` makes it, with these members. Each has an account of its own."""

    def __init__(self, folder: Path, members: Mapping[str, Sequence[Role]]) -> None:
        self.folder, self._port = folder, free_port()
        found(str(folder), "team", ["127.0.0.1"], self._port)
        for name, roles in members.items():
            add_member(str(folder), name, roles)

    def member(self, name: str) -> FleetMember:
        """Read the file of a member, or of `admin`."""
        return read_member(str(self.folder / f"{name}.member"))

    def start(self) -> None:
        """Start the node, and wait until it listens."""
        node = self.folder / "127.0.0.1"
        with (node / "log").open("ab") as log:
            self._process = subprocess.Popen([SERVER, "-c", "nats.conf"], cwd=node, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            assert time.monotonic() < end and self._process.poll() is None, (node / "log").read_text()
            time.sleep(0.02)

    def prepare(self, max_bytes: int) -> None:
        """Create the fleet's streams, as soon as the node's storage serves."""

        async def play() -> None:
            async with connect_member(self.member("admin")) as engine:
                await engine.prepare(1, max_bytes)

        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return asyncio.run(play())
            except ClisupError:
                assert time.monotonic() < end, (self.folder / "127.0.0.1" / "log").read_text()
                time.sleep(0.2)


class NatsServer(_Killable):
    """Process of the engine: start, kill and start again on the same port."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self._directory, self._extra = directory, extra
        self._port = -1

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the server, and wait until it says on which port it listens."""
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "server.conf"
        store = json.dumps(str(self._directory / "store"))
        config.write_text(
            f"listen: 127.0.0.1:{self._port}\nports_file_dir: {json.dumps(str(self._directory))}\n"
            f"jetstream {{ store_dir: {store}, sync_interval: always }}\n{self._extra}\n"
        )
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen([SERVER, "-c", config], stdout=log, stderr=log)
        ports = self._directory / f"nats-server_{self._process.pid}.ports"
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                [url] = json.loads(ports.read_text())["nats"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.02)
                continue
            self._port = int(url.rpartition(":")[2])
            return
        self.kill()
        raise AssertionError((self._directory / "log").read_text())

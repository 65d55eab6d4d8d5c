"""A nats-server on loopback, in a directory of its own, for one test file."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
SERVER = Path(sys.executable).with_name("nats-server")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


class NatsServer:
    """Process of the engine: start, kill and start again on the same port."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self._directory, self._extra = directory, extra
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None

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

    def kill(self) -> None:
        """Kill the server as a power loss does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

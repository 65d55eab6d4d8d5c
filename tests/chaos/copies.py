"""Daemons on copies of the state directory, one after the other, beside the daemon that is killed (`COPY=1`)."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import trio
from wire import Hangup, Wire

from clisup.errors import ClisupError
from tests.chaos.lives import START_LIMIT_S, Ground

__all__ = ["Copies"]

LOOK_S = 0.02


class Copies:
    """Serves copies. Their backend cannot start anything: a copied queue would run its prompts a second time."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._state, self._socket = ground.root / "copy", str(ground.root / "c")
        self._config, self._log = ground.root / "copy.toml", ground.root / "copy.log"
        self._config.write_text(f'[backends.{ground.cast.backend}]\ncommand = ["/nonexistent/cli"]\n')
        self.served = 0

    async def run(self, done: Callable[[], bool]) -> None:
        """Serve one copy after the other until it is `done`."""
        while not done():
            await trio.to_thread.run_sync(self._one)

    def _one(self) -> None:
        # What vanishes meanwhile is missing in the copy.
        subprocess.run(["cp", "-a", str(self._ground.state), str(self._state)], stderr=subprocess.DEVNULL)
        words = ["--socket", self._socket, "--state-dir", str(self._state), "--config", str(self._config)]
        process = self._ground.zygote.fork(["serve", *words, "--log-format", "json"], self._ground.env, self._log)
        try:
            end = time.monotonic() + START_LIMIT_S
            while process.poll() is None and time.monotonic() < end and not self._settled():
                time.sleep(LOOK_S)
            self.served += process.poll() is None
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(self._state, ignore_errors=True)

    def _settled(self) -> bool:
        """Tell whether no copied turn runs any more."""
        try:
            with Wire(self._socket) as wire:
                rows: list[dict[str, Any]] = wire.call("session/list")["sessions"]
        except (OSError, Hangup, ClisupError):
            return False
        return not any(row["state"] == "running" for row in rows)

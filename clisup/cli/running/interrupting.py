"""Ctrl-C while a turn runs: the first asks the CLI to stop, the second kills its process tree, the third leaves it to itself."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any, Self

from clisup.client.sync import Client
from clisup.errors import ClisupError

__all__ = ["Interrupting"]

_SAID = {
    1: b"\n[interrupting the turn; Ctrl-C again kills it]\n",
    2: b"\n[killing the turn; Ctrl-C again leaves without waiting]\n",
}


class Interrupting:
    """Owns SIGINT inside its block. Until `turn_id` is set there is nothing to interrupt, and Ctrl-C simply ends the command.

    The handler never touches the connection that is being read: it asks on one of its own, and the turn's end then comes as
    an event like any other.
    """

    def __init__(self, path: str, session_id: str) -> None:
        self._path, self._session_id = path, session_id
        self._asked: list[Client] = []
        self._before: Any = None
        self.turn_id: str | None = None
        self.times = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        for client in self._asked:
            client.close()

    def ask_again(self) -> None:
        """After a restart of the daemon: it may not have heard."""
        if self.times:
            self._ask()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.times += 1
        if self.turn_id is None or self.times > max(_SAID):
            raise KeyboardInterrupt
        os.write(2, _SAID[self.times])  # not print: the handler may have cut into one
        self._ask()

    def _ask(self) -> None:
        mode = "graceful" if self.times == 1 else "kill"
        try:
            client = Client.connect(self._path, name="clisup-run")
            self._asked.append(client)
            client.post("session/interrupt", session_id=self._session_id, turn_id=self.turn_id, mode=mode)
        except ClisupError:
            os.write(2, b"[the daemon does not hear it now; it is told when it is back]\n")

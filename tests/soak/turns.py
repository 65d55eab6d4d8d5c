"""What one worker of the soak does: short turns of every kind, on a session that it closes and opens anew now and then."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness
from wire import Wire

__all__ = ["SESSION_TURNS", "Worker"]

SESSION_TURNS = 100  # then the session is closed: what the daemon remembers of it stays (docs/proofs/README.md)
TEXT = "a short answer"
SCRIPTS: dict[str, tuple[str, str]] = {
    # kind -> what the demo CLI does, the turn's outcome
    "answer": (TEXT, "completed"),
    "stream": ("@stream 20", "completed"),
    "tool": ("@tool Read => ok\n" + TEXT, "completed"),
    "process": ("@bash true\n" + TEXT, "completed"),
    "stderr": ("@stderr a word\n" + TEXT, "completed"),
    "noise": ("@noise\n@unknown\n@bad\n" + TEXT, "completed"),
    "exit": ("@exit 3", "failed"),
    "crash": ("hello\n@crash", "failed"),
    "refused": ("@error overloaded", "failed"),
    "orphan": (TEXT + "\n@orphan setsid 60", "completed"),
    "interrupted": ("@stall", "interrupted"),
}
_PLAN = ["answer"] * 8 + [
    "stream",
    "tool",
    "process",
    "stderr",
    "noise",
    "exit",
    "crash",
    "answer",
    "refused",
    "orphan",
    "interrupted",
]
"""The order is such that no five starts in a row fail: the daemon would back off."""


class Worker:
    """One client with one session at a time; `play` is run in a thread."""

    def __init__(self, daemon: Harness, number: int) -> None:
        self._daemon = daemon
        self._number = number
        self._session = ""
        self._left = 0
        self._done = number  # so that the workers are not in step
        self.opened = 0
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    def play(self, claim: Callable[[], bool]) -> None:
        """Turns, as long as `claim()` gives one."""
        try:
            with self._daemon.wire() as wire:
                while claim():
                    self._turn(wire)
        except Exception as error:
            self.wrong.append(f"worker {self._number}: {error!r}")

    def thread(self, claim: Callable[[], bool]) -> threading.Thread:
        return threading.Thread(target=self.play, args=(claim,))

    def _turn(self, wire: Wire) -> None:
        if self._left == 0:
            self._open_anew(wire)
        kind = _PLAN[self._done % len(_PLAN)]
        self._done += 1
        self._left -= 1
        outcome, expected = self._outcome(wire, kind), SCRIPTS[kind][1]
        self.outcomes[outcome] += 1
        if outcome != expected:
            self.wrong.append(f"{kind}: {outcome} instead of {expected} in {self._session}")

    def _open_anew(self, wire: Wire) -> None:
        if self._session:
            wire.call("session/close", session_id=self._session)
        self._session = wire.call("session/new", backend="demo", cwd=str(self._daemon.cwd))["session_id"]
        self._left = SESSION_TURNS
        self.opened += 1

    def _outcome(self, wire: Wire, kind: str) -> str:
        params = {"session_id": self._session, "prompt": SCRIPTS[kind][0]}
        if kind == "interrupted":
            return self._interrupted(params)
        if self._done % 5 == 0:
            return self._followed(params)
        if self._done % 7 == 0:
            params["key"] = f"key {self._done}"
        return str(wire.call("session/prompt", **params, wait=True)["outcome"])

    def _followed(self, params: dict[str, str]) -> str:
        """Another client comes, reads the session from its beginning to the end of this turn, and goes in its own way."""
        with self._daemon.wire() as follower:
            follower.call("session/subscribe", session_id=self._session, after_seq=0)
            turn = follower.call("session/prompt", **params)["turn_id"]
            while (event := follower.event())["type"] != "turn_completed" or event["turn_id"] != turn:
                pass
            if self._done % 2:
                follower.call("session/unsubscribe", session_id=self._session)
            return str(event["outcome"])

    def _interrupted(self, params: dict[str, str]) -> str:
        with self._daemon.wire() as other:
            other.call("session/subscribe", session_id=self._session)
            turn = other.call("session/prompt", **params)["turn_id"]
            while other.event()["type"] != "session_init":
                pass
            return str(other.call("session/interrupt", session_id=self._session, turn_id=turn)["outcome"])

"""A daemon that is stopped and goes on: no healthy turn may be ended for it, and a hung one still must be (fault 21).

A real daemon on the demo backend. `HEALTHY` sessions have short turns that never pause for as long as the limit; then the
daemon gets SIGSTOP for longer than the limit, by a little and by much, and SIGCONT. Two hung turns in each round are the
control. A pause counts once for each healthy session that it met.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness, until
from session_probe import SessionProbe

__all__ = ["Pauses", "pause"]

HEALTHY, HUNG = 20, 2
LIMIT_S = 1.2
PAUSES_S = (1.4, 2.0, 2.9)  # late by less than a second (judged by unread output) and by more (a credited window)
BEFORE_S = (0.1, 0.5, 0.9)  # the control has been silent for so long when the pause begins
SCRIPTS = ("@pings 0.1 40\nwell", "@stream 14 13 0.3", "@pings 0.3 12\nwell", "@stream 40 100 0.1")
QUEUED = 2
NAIVE = """
import os, sys, clisup.daemon.runs.run as run
run.LATE_TICK_S, run.Run._unread = 1e9, lambda _self: False
execve, self = os.execve, sys.orig_argv[sys.orig_argv.index("-c") + 1]
os.execve = lambda path, argv, env: execve(path, [path, "-P", "-c", self, *argv[4:]], env)  # it starts itself anew
sys.argv[0] = "clisup"
from clisup.cli.main import main
main()
"""


@dataclass
class Pauses:
    """What came of it."""

    pauses: int = 0
    turns: int = 0
    false_kills: int = 0
    hung: int = 0
    hung_ended: int = 0
    worst_hung_s: float = 0.0  # from SIGCONT to the end of a hung turn


class NaiveHarness(Harness):
    """The control: a daemon that neither credits a late tick nor looks at what came meanwhile."""

    def argv(self) -> list[str]:
        return [sys.executable, "-c", NAIVE, *super().argv()[3:]]


def pause(count: int = 200, healthy: int = HEALTHY, *, naive: bool = False) -> Pauses:
    """Run them. The daemon is real, so are its processes; nothing of either is left."""
    result = Pauses()
    kind = NaiveHarness if naive else Harness
    daemon = kind(timeouts={"model_idle": LIMIT_S, "startup": 30, "tool_idle": 60, "linger": 10, "term_grace": 0.3})
    try:
        daemon.start()
        sessions = [daemon.new() for _ in range(healthy)]
        for number in range(math.ceil(count / healthy)):
            _feed(sessions, number)
            _round(daemon, sessions, number, result)
        for session in sessions:
            until(lambda s=session: s.get()["state"] == "idle" and not s.get()["queue"], "the last healthy turns")
            ends = session.events("turn_completed")
            result.turns += len(ends)
            result.false_kills += sum(end["outcome"] != "completed" for end in ends)
    finally:
        daemon.close()
    return result


def _feed(sessions: list[SessionProbe], number: int) -> None:
    """Never without a turn: some run, some start, some end while the daemon is away."""
    for k, session in enumerate(sessions):
        for _ in range(QUEUED - len(session.get()["queue"])):
            session.prompt(SCRIPTS[(k + number) % len(SCRIPTS)])


def _round(daemon: Harness, sessions: list[SessionProbe], number: int, result: Pauses) -> None:
    hung = [daemon.new() for _ in range(HUNG)]
    turns = [session.prompt("a word\n@stall") for session in hung]
    for session in hung:
        session.await_event("content_delta")
    time.sleep(BEFORE_S[number % len(BEFORE_S)])
    result.pauses += sum(session.get()["state"] != "idle" for session in sessions)
    daemon.signal(signal.SIGSTOP)
    time.sleep(PAUSES_S[number // len(BEFORE_S) % len(PAUSES_S)])
    daemon.signal(signal.SIGCONT)
    back = time.monotonic()
    for session, turn in zip(hung, turns, strict=True):
        outcome = session.end_of(turn)["outcome"]
        result.hung += 1
        result.hung_ended += outcome == "timed_out"
        result.worst_hung_s = round(max(result.worst_hung_s, time.monotonic() - back), 3)

"""What the sessions do: kinds of sessions, each a list of turns for the demo backend, with the exit that each must have.

A turn writes its number into `ran-<number>` in the session's own directory, so that a prompt that ran twice, or never, is
seen. What is ended from outside ignores SIGINT and SIGTERM: its end is a SIGKILL, whichever step of a ladder a kill of the
daemon fell into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CONFIG", "KINDS", "PATTERN", "Exit", "Script", "kind_of"]

WORDS, MESSAGE_END = b"ready to be ended", b'"message_stop"'

CONFIG: dict[str, dict[str, Any]] = {
    "daemon": {"segment_bytes": 65536, "max_running": 24},  # small segments: they roll all the time
    "limits": {"inline_bytes": 16384},
    "timeouts": {"int_grace": 0.2, "term_grace": 0.2},
}
_IDLE_S = 1.0


@dataclass(frozen=True)
class Exit:
    """How the CLI's process ends; both None where its keeper was killed, and nobody can know."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class Script:
    """One prompt. `together`: it is sent while the one before it still runs."""

    text: str
    exit: Exit = Exit(0)
    outcome: str = "completed"
    act: Literal["interrupt", "kill keeper"] | None = None
    follow_ups: int = 0
    together: bool = False
    ready: tuple[bytes, int] = (WORDS, 1)
    """What is in the spool, and how often, when a turn has said all that it will before something from outside ends it."""

    def prompt(self, number: int) -> str:
        """What is sent."""
        return f"@bash echo {number} >> ran-{number}\n{self.text}"


@dataclass(frozen=True)
class Kind:
    """A session's turns, and its own limits."""

    name: str
    scripts: tuple[Script, ...]
    timeouts: dict[str, float] | None = None


_STUBBORN = f"@ignore-int\n@ignore-term\n@heartbeat 1000\nsome text\n{WORDS.decode()}\n"
_ENDED = {"exit": Exit(signal=9), "outcome": "interrupted", "act": "interrupt"}
_ORPHANED = {"exit": Exit(), "outcome": "failed", "act": "kill keeper"}
_SILENT = Script(f"{_STUBBORN}@stall", exit=Exit(signal=9), outcome="timed_out")

TALK = Kind(
    "talk",
    (
        Script("@think a thought\nSome text.\nAnd more.\n@stream 120 80\nThe last words."),
        Script("@stream 40 200 0.01\n@stderr one line\n@stderr another", together=True),
        Script("@background 0.3 the follow-up\nanswered", follow_ups=1),
        Script("@cut\n@count\n@recall"),
        Script('@structured {"a": [1, 2]}\n@usage 1000 200\n@cost 0.25\nfor a price', together=True),
        Script("@stream 200 300"),
    ),
)
TOOLS = Kind(
    "tools",
    (
        Script(
            '@tool Read {"file_path": "/x"} => content\n@parallel\n@tool A {} => one\n@tool B {} => two\n@end\nread'
        ),
        Script("@bash exit 3\nthat failed\n@exit 7", exit=Exit(7), outcome="failed", together=True),
        Script("@bash sleep 0.4; echo late\nlate, but there"),
        Script("no result will come\n@exit 0", outcome="failed", together=True),
        Script('@denied Write {"file_path": "/x", "content": "y"}\n@bash (setsid sleep 60 &) ; echo left behind\ndone'),
        Script("@stream 30 40 0.02\n@error rate_limit", exit=Exit(1), outcome="failed"),
    ),
)
BYTES = Kind(
    "bytes",
    (
        Script("@huge 150000"),
        Script("@noise\n@bad\n@unknown\n@misshapen\nall kept", together=True),
        Script("@line 90000\n@stderr-flood 20000\na long line"),
        Script("half a frame comes\n@crash", exit=Exit(1), outcome="failed"),
        Script("@retry overloaded 2\n@stream 300 250\n@die SEGV", exit=Exit(signal=11), outcome="failed"),
        Script("@stream 60 3000\n@die KILL", exit=Exit(signal=9), outcome="failed"),
    ),
)
ENDS = Kind(
    "ends",
    (
        Script(f"{_STUBBORN}@stall", **_ENDED),
        Script(f"{_STUBBORN}@stall", **_ORPHANED),
        Script(f"{_STUBBORN}@bash trap '' INT TERM; sleep 60", **_ENDED, ready=(MESSAGE_END, 2)),
        Script(f"{_STUBBORN}@bash trap '' INT TERM; sleep 60", **_ORPHANED, ready=(MESSAGE_END, 2)),
        Script("@ignore-int\n@ignore-term\n@retry authentication 1\n@stall", exit=Exit(signal=9), outcome="failed"),
        Script(f"{_STUBBORN}@stall", **_ORPHANED),
    ),
)
SILENT = Kind("silent", (_SILENT,) * 3, timeouts={"model_idle": _IDLE_S})

KINDS = {kind.name: kind for kind in (TALK, TOOLS, BYTES, ENDS, SILENT)}
PATTERN = (TALK, ENDS, TOOLS, BYTES, SILENT, TALK, ENDS, TOOLS, BYTES, ENDS)


def kind_of(slot: int) -> Kind:
    """The kind that the sessions of this slot have."""
    return PATTERN[slot % len(PATTERN)]

"""What the sessions do: kinds of sessions, each a list of turns for the demo backend, with the exit that each must have.

A turn writes its number into `ran-<number>` in the session's own directory, so that a prompt that ran twice, or never, is
seen. What is ended from outside ignores SIGINT and SIGTERM: its end is a SIGKILL, whichever step of a ladder a kill of the
daemon fell into.

The live kinds have one process for many turns. A script whose exit is None leaves it running; what ends the last one is the
session's close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CONFIG", "PATTERN", "Act", "Exit", "Kind", "Script"]

WORDS, MESSAGE_END = b"ready to be ended", b'"message_stop"'

Act = Literal["interrupt", "stop", "kill keeper", "kill cli", "kill cli at rest"]
"""What is done to a turn: `interrupt` ends its process at once; `stop` asks politely, and a live process goes on after it."""

CONFIG: dict[str, dict[str, Any]] = {
    "daemon": {"segment_bytes": 65536, "max_running": 24, "max_live": 100},  # small segments: they roll all the time
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
    exit: Exit | None = Exit(0)
    """How its process ends; None where it lives on."""
    outcome: str = "completed"
    act: Act | None = None
    follow_ups: int = 0
    together: bool = False
    ready: tuple[bytes, int] = (WORDS, 1)
    """What is in the spool, and how often, when a turn has said all that it will before something from outside happens."""
    steer: Literal["merged", "own turn"] | None = None
    """It is said into the turn before it, which waits for `GATE`; that one takes it, or it gets a turn of its own."""
    answers: tuple[Literal["allow", "deny"], ...] = ()
    """What a client says to each tool call that asks, in order."""
    asked: int = 0
    """How many ask and are left without an answer."""
    witness: bool = True
    """It writes its number itself; else one of its tools that ask does."""
    rest_s: float = 0.0
    """For so long nothing is asked of the session after this turn."""
    code_at_close: int | None = None
    """With what a live process leaves that is let go after this turn; None: as claude, whose code tells of an error."""

    def prompt(self, number: int) -> str:
        """What is sent."""
        text = self.text.replace("GATE", f"gate-{number}").replace("NUMBER", str(number))
        return f"@bash echo {number} >> ran-{number}\n{text}" if self.witness else text

    @property
    def turns(self) -> int:
        """How many turns it has."""
        return self.follow_ups + (self.steer != "merged")

    @property
    def at_close(self) -> Exit:
        """How a live process ends that is let go after this turn."""
        return Exit(int(self.outcome != "completed") if self.code_at_close is None else self.code_at_close)


@dataclass(frozen=True)
class Kind:
    """A session's turns, its mode, and its own limits."""

    name: str
    scripts: tuple[Script, ...]
    timeouts: dict[str, float] | None = None
    mode: Literal["one-shot", "live"] = "one-shot"


_STUBBORN = f"@ignore-int\n@ignore-term\n@heartbeat 1000\nsome text\n{WORDS.decode()}\n"
_ENDED = {"exit": Exit(signal=9), "outcome": "interrupted", "act": "interrupt"}
_ORPHANED = {"exit": Exit(), "outcome": "failed", "act": "kill keeper"}
_SILENT = Script(f"{_STUBBORN}@stall", exit=Exit(signal=9), outcome="timed_out")

TALK = Kind(
    "talk",
    (
        Script("@think a thought\nSome text.\nAnd more.\n@stream 120 80\nThe last words."),
        Script("@stream 40 200 0.01\n@stderr one line\n@stderr another", together=True),
        Script("@background 0.3 the follow-up\nanswered"),
        Script("@delegate 0.3 a report => the final answer\nanswered"),
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
        Script("@ignore-int\n@ignore-term\n@retry authentication 3\n@stall", exit=Exit(signal=9), outcome="failed"),
        Script(f"{_STUBBORN}@stall", **_ORPHANED),
    ),
)
SILENT = Kind("silent", (_SILENT,) * 3, timeouts={"model_idle": _IDLE_S})

_POLITE = {"int_grace": 60.0, "term_grace": 1.0}
"""A live process has time to end its turn as it is asked to: here that is not to be the matter of a slow machine."""
_ON: dict[str, Any] = {"exit": None}
_CALM = "@heartbeat 1000\n"
"""How long a tool takes here is the matter of the machine and of the kills: it is not to tell of it."""
_ASK = '@run Bash {"command": "echo NUMBER >> ran-NUMBER"}'

LIVE = Kind(
    "live",
    (
        Script("@think a thought\nSome text.\n@stderr a line\nAnd more.\n@stream 120 80", **_ON, rest_s=0.7),
        Script("@background 0.3 the follow-up\nanswered", **_ON, follow_ups=1),
        Script("@delegate 0.3 a report => the final answer\nanswered", **_ON),
        Script('@tool Read {"file_path": "/x"} => content\n@bash exit 3\n@parallel\n@tool A {} => one\n@end', **_ON),
        Script("@count\n@recall\n@huge 60000", **_ON, together=True),
        Script("@stream 40 200 0.01\n@error rate_limit", **_ON, outcome="failed", together=True),
        Script("@noise\n@stderr another\n@usage 1000 200\n@cost 0.25\nfor a price", **_ON, rest_s=0.7),
    ),
    _POLITE,
    "live",
)
BREAKS = Kind(
    "breaks",
    (
        Script(f"some text\n{WORDS.decode()}\n@stall", **_ON, outcome="interrupted", act="stop"),
        Script("@stream 60 80\n@die KILL", exit=Exit(signal=9), outcome="failed"),
        Script("@recall\n@stream 30 80", exit=Exit(signal=9), act="kill cli at rest", rest_s=0.3),
        Script(f"{_CALM}@bash sleep 60", **_ON, outcome="interrupted", act="stop", ready=(MESSAGE_END, 2)),
        Script(f"{_STUBBORN}@stall", **_ORPHANED),
        Script(f"@count\n{WORDS.decode()}\n@stall", exit=Exit(signal=9), outcome="failed", act="kill cli"),
    ),
    _POLITE,
    "live",
)
STEERS = Kind(
    "steers",
    (
        Script(f"{_CALM}@bash while ! [ -e GATE ]; do sleep 0.05; done\nthe end", **_ON, ready=(MESSAGE_END, 2)),
        Script("@stream 20 80\nsteered, and merged", **_ON, together=True, steer="merged"),
        Script(f"{WORDS.decode()}\n@wait-file GATE\nthe end", **_ON),
        Script("@stream 20 80\nsteered, and too late", **_ON, together=True, steer="own turn", rest_s=0.5),
        Script(f"{_CALM}@bash while ! [ -e GATE ]; do sleep 0.05; done\n@stream 40 80", **_ON, ready=(MESSAGE_END, 2)),
        Script("steered, and merged", **_ON, together=True, steer="merged"),
    ),
    _POLITE,
    "live",
)
ASKS = Kind(
    "asks",
    (
        Script(f"{_CALM}{_ASK}\nallowed", **_ON, answers=("allow",), witness=False),
        Script(f"{_CALM}{_ASK}\nnot allowed", **_ON, answers=("deny",)),
        Script(
            f'{_CALM}@ask Write {{"file_path": "/x"}}\n{_ASK}\n{_ASK}\n@stream 30 80',
            **_ON,
            answers=("deny", "allow", "deny"),
            witness=False,
        ),
        Script(
            f"{_CALM}{_ASK}\nno word will come",
            **_ON,
            outcome="interrupted",
            act="stop",
            asked=1,
            ready=(MESSAGE_END, 2),
        ),
        Script(f"{_CALM}{_ASK}\nallowed", **_ON, answers=("allow",), witness=False, together=True, rest_s=0.5),
        Script(f"{_CALM}{_ASK}\nno word will come", **_ORPHANED, asked=1, ready=(MESSAGE_END, 2)),
    ),
    _POLITE,
    "live",
)

PATTERN = (TALK, LIVE, TOOLS, ASKS, ENDS, BYTES, BREAKS, SILENT, STEERS, ENDS)

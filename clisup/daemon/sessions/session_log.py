"""Log lines for journaled events: one line for each change of state.

A line holds only names, numbers and words of fixed lists. Texts, inputs and paths of CLIs and clients never appear.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from clisup.daemon.journal.recorder import Item, Recorder
from clisup.host.log import LOG, event_logger
from clisup.model import events as ev
from clisup.model.structs import JsonObject

Level = Literal["debug", "info", "warning", "error"]
Line = tuple[Level, str, JsonObject]
_WORD = re.compile(r"[a-z_]{1,64}")
"""Form of a stop reason in the log: a word of an API. The log omits any other text of the CLI."""
_log = event_logger()


class SessionLog:
    """Log of a session. Call `log` with journaled events, after the ledger has folded them."""

    __slots__ = ("_backend", "_recorder", "_run", "_session_id", "_turn")

    def __init__(self, session_id: str, backend: str, recorder: Recorder) -> None:
        self._session_id = session_id
        self._backend = backend
        self._recorder = recorder
        self._turn = ""
        self._run = 0

    def log(self, items: Sequence[Item]) -> None:
        """Log the state changes among the events."""
        for item in items:
            if (line := TOLD.get(type(item.event))) is not None:
                self._say(item, line(item.event))

    def _say(self, item: Item, line: Line) -> None:
        level, event, fields = line
        turn = self._recorder.ledger.active_turn
        if isinstance(item.event, ev.TurnStarted):
            self._turn, self._run = item.turn_id or "", item.event.run
        elif turn is not None and turn.run:
            self._turn, self._run = turn.id, turn.run
        mine = item.turn_id == self._turn or isinstance(
            item.event, ev.ProcessExited
        )  # between two turns of a live process
        if level == "debug" and LOG.level > logging.DEBUG:
            return  # most lines have this level, so skip the work
        about = {"turn": item.turn_id or None, "run": self._run or None if mine else None}
        getattr(_log, level)(event, session=self._session_id, **about, backend=self._backend, **fields)


def _actor(actor: ev.Actor | None) -> JsonObject:
    return {} if actor is None else msgspec.to_builtins(actor)


def _turn_completed(event: ev.TurnCompleted) -> Line:
    bad = event.outcome in ("failed", "timed_out")
    fields = {
        "outcome": event.outcome,
        "kind": event.error.kind if event.error else None,
        "delivery": event.delivery,
        "stop_reason": event.stop_reason if _WORD.fullmatch(event.stop_reason or "") else None,
        "duration_s": event.duration_s,
        "input_tokens": event.usage.total_input_tokens,
        "output_tokens": event.usage.output_tokens,
        "cost_usd": event.cost_usd,
    }
    return "warning" if bad else "info", "turn ended", fields


def _process_exited(event: ev.ProcessExited) -> Line:
    asked = event.ended_by in ("cli", "client", "operator") and not (event.ended_by == "cli" and event.signal)
    fields = {
        "exit_code": event.exit_code,
        "signal": event.signal,
        "ended_by": event.ended_by,
        "survivors": len(event.survivors) or None,
        "duration_s": event.duration_s,
    }
    return "info" if asked else "warning", "process exited", fields


def _watchdog(event: ev.WatchdogNotice) -> Line:
    level: Level = "debug" if event.action == "credited" else "warning"
    fields = {"phase": event.phase, "idle_s": event.idle_s, "limit_s": event.limit_s}
    return level, f"watchdog {event.action}", fields


NOTICES: dict[str, tuple[Level, str]] = {
    "adopted": ("info", "turn adopted"),
    "checkpoint_ignored": ("warning", "checkpoint ignored"),
    "closed": ("info", "session closed"),
    "foreign_writes": ("warning", "foreign writes"),
    "history_not_kept": ("warning", "history not kept"),
    "held": ("info", "turn held"),
    "journal_renewed": ("warning", "journal renewed"),
    "process_restarted": ("info", "process restarted"),
    "prompt_not_taken": ("info", "prompt not taken"),
    "run_replaced": ("warning", "run replaced"),
    "session_corrected": ("info", "session corrected"),
}
"""Notices with a log event of their own. Any other notice is `notice` with its code, at level debug."""


def _notice(event: ev.Notice) -> Line:
    if event.code in NOTICES:
        return *NOTICES[event.code], {"why": (event.data or {}).get("why")}
    own = not event.code.startswith("client.")  # codes of a client
    return "debug", "notice", {"code": event.code if own else "client"}


TOLD: dict[type[ev.EventBase], Callable[[Any], Line]] = {
    ev.PromptAccepted: lambda e: ("debug", "prompt accepted", {"delivery": e.delivery, **_actor(e.actor)}),
    ev.TurnStarted: lambda e: ("info", "turn started", {"origin": e.origin, **_actor(e.actor)}),
    ev.TurnCompleted: _turn_completed,
    ev.ProcessStarted: lambda e: ("info", "process started", {"pid": e.pid, "attested": e.env_attested}),
    ev.ProcessExited: _process_exited,
    ev.WatchdogNotice: _watchdog,
    ev.ApprovalRequested: lambda e: ("info", "approval asked", {"approval": e.approval_id}),
    ev.ApprovalResolved: lambda e: (
        "info",
        "approval decided",
        {"approval": e.approval_id, "decision": e.decision, "by": e.by, **_actor(e.actor)},
    ),
    ev.SessionForked: lambda e: (
        "info",
        "session forked",
        {"source": e.source_session_id, "at_turn": e.at_turn, **_actor(e.actor)},
    ),
    ev.SessionSeeded: lambda e: ("info", "session seeded", {"messages": e.messages, **_actor(e.actor)}),
    ev.Notice: _notice,
}
"""Logged events of the journal."""

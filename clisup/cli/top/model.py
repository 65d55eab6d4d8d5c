"""What `clisup top` knows: the daemon's status and the events since, folded into rows. Pure: times come as arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clisup.cli.status.columns import limited_accounts
from clisup.cli.views.event_lines import words
from clisup.cli.views.terminal import clip

__all__ = ["FIRST_SORT", "RATES", "SORTS", "Board", "NextTimer", "pause_after"]

RATES = 120
"""Samples of the throughput that are kept, one a look at the status."""

LAST_WORDS = 160
"""Characters of a session's last event that are kept."""

LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 5.0
_SHARE = 10.0
_ABOUT_TURNS = ("turn_started", "turn_completed", "prompt_accepted", "approval_requested", "approval_resolved")
_WRITING = "writing ..."
_Event = dict[str, Any]
_Session = dict[str, Any]
_Key = tuple[str, str]


def pause_after(took: float) -> float:
    """Seconds until the status is asked for again: once a second, less often where the answer itself takes long."""
    return min(max(LEAST_PAUSE_S, took * _SHARE), MOST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class NextTimer:
    """The timer that fires first."""

    session_id: str
    phase: str
    in_s: float


@dataclass
class Board:
    """Everything that is shown. `connected` is whether the daemon is heard; what is shown is else what it said last."""

    status: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    connected: bool = False
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES))
    approvals: dict[_Key, _Event] = field(default_factory=dict)
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)
    _stirred: dict[str, float] = field(default_factory=dict)

    # -- what comes in

    def take_status(self, status: dict[str, Any], now: float) -> None:
        """The daemon's answer to `daemon/status`; `now` is monotonic, in seconds."""
        if self._same_daemon(status) and now > self.at:
            before = {s["session_id"]: s["next_seq"] for s in self.sessions}
            new = sum(max(0, s["next_seq"] - before.get(s["session_id"], 1)) for s in status["sessions"])
            self.rates.append(new / (now - self.at))
        self.status, self.at = status, now
        known = {s["session_id"] for s in status["sessions"]}
        for kept in (self._last, self._stirred):
            for gone in kept.keys() - known:
                del kept[gone]
        for key in [key for key in self.approvals if key[0] not in known]:
            del self.approvals[key]

    def take_event(self, event: _Event, now: float) -> bool:
        """One event of any session. True where the status should be asked for at once, as a turn began or ended."""
        session_id, kind = event["session_id"], event["type"]
        seq = int(event.get("seq") or event.get("to_seq") or 0)
        self._last[session_id] = seq, clip(f"{kind} {words(event)}".rstrip(), LAST_WORDS)
        self._stirred[session_id] = now
        if kind == "approval_requested":
            self.approvals[session_id, event["approval_id"]] = event
        elif kind == "approval_resolved":
            self.approvals.pop((session_id, event["approval_id"]), None)
        return kind in _ABOUT_TURNS

    def take_approvals(self, approvals: Iterable[_Event]) -> None:
        """The answer to `approval/list`: these, and no others, are open."""
        self.approvals = {(a["session_id"], a["approval_id"]): a for a in approvals}

    # -- what it says

    @property
    def sessions(self) -> list[_Session]:
        """The daemon's summaries, as they came."""
        return list(self.status.get("sessions") or ())

    @property
    def approvals_doubtful(self) -> bool:
        """Does the daemon count other approvals than are known here? Then they are to be listed."""
        return sum(s.get("approvals") or 0 for s in self.sessions) != len(self.approvals)

    def session(self, session_id: str | None) -> _Session | None:
        return next((s for s in self.sessions if s["session_id"] == session_id), None)

    def shown(self, order: str, wanted: str, now: float) -> list[_Session]:
        """The sessions that hold all words of `wanted`, by `order` (of `SORTS`)."""
        parts = wanted.lower().split()
        found = [s for s in self.sessions if all(part in _haystack(s) for part in parts)] if parts else self.sessions
        return sorted(found, key=lambda s: (SORTS[order](self, s, now), s["session_id"]))

    def idle_s(self, session: _Session, now: float) -> float | None:
        """Seconds without an event of its turn; None where none runs."""
        if session.get("idle_s") is None:
            return None
        said = float(session["idle_s"]) + (now - self.at)
        heard = self._stirred.get(session["session_id"])
        return max(0.0, said if heard is None else min(said, now - heard))

    def age_s(self, session: _Session, now: float) -> float:
        return float(session.get("age_s") or 0.0) + (now - self.at)

    def last_words(self, session: _Session) -> str:
        """Its last event; of one that was not heard here (pieces of text, what came before this view) the type alone."""
        seq, heard = self._last.get(session["session_id"], (0, ""))
        last = session.get("last_event") or {}
        if int(last.get("seq") or 0) <= seq:
            return heard
        return _WRITING if last.get("type") == "content_delta" else str(last.get("type") or "-")

    def next_timer(self, now: float) -> NextTimer | None:
        timers = [
            NextTimer(s["session_id"], t["phase"], max(0.0, float(t["fires_in_s"]) - (now - self.at)))
            for s in self.sessions
            if (t := s.get("next_timer"))
        ]
        return min(timers, key=lambda timer: timer.in_s) if timers else None

    @property
    def limited(self) -> list[dict[str, Any]]:
        """Accounts near or at their limit, or that hold turns."""
        return limited_accounts(self.status)

    def question(self, pinned: _Key | None, selected: str | None) -> _Event | None:
        """The approval to show: the `pinned` one while it is open, else the selected session's oldest, else the oldest."""
        if pinned in self.approvals:
            return self.approvals[pinned]
        of_selected = (a for (session_id, _), a in self.approvals.items() if session_id == selected)
        return next(of_selected, None) or next(iter(self.approvals.values()), None)

    def _same_daemon(self, status: dict[str, Any]) -> bool:
        before: dict[str, Any] = self.status.get("daemon") or {}
        return bool(before.get("instance_id") == status["daemon"]["instance_id"])


def _haystack(s: _Session) -> str:
    labels = (f"{name}={value}" for name, value in (s.get("labels") or {}).items())
    parts = (s["session_id"], s["backend"], s["state"], s.get("phase"), s.get("model"), s.get("cwd"), *labels)
    return " ".join(str(part) for part in parts if part).lower()


def _attention(board: Board, s: _Session, _now: float) -> tuple[int, float]:
    """Who waits for a person first, then who works, who waits for a slot, and who rests; the newest first."""
    rank = 0 if s.get("approvals") else 1 if s.get("turn_id") else 2 if s.get("queue") else 3
    return rank, float(s.get("age_s") or 0.0)


def _total(s: _Session) -> int:
    return sum(v for name, v in (s.get("tokens") or {}).items() if name.endswith("_tokens") and isinstance(v, int))


FIRST_SORT = "attention"
SORTS: dict[str, Callable[[Board, _Session, float], Any]] = {
    "attention": _attention,
    "session": lambda board, s, now: s["session_id"],
    "idle": lambda board, s, now: -(board.idle_s(s, now) or -1.0),
    "age": lambda board, s, now: -board.age_s(s, now),
    "memory": lambda board, s, now: -(s.get("rss_bytes") or 0),
    "tokens": lambda board, s, now: -_total(s),
    "cost": lambda board, s, now: -(s.get("cost_usd") or 0.0),
}
"""Orders of the table, each a key of the board, a session and the time; `s` goes through them in turn."""

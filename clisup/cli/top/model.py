"""Model of `clisup top`: the daemon's status and the events since, folded into rows. Pure: times come as arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clisup.cli.status.columns import limited_accounts, status_of
from clisup.cli.views.events import Event, words
from clisup.cli.views.terminal import clip
from clisup.client.raw import JsonObject

__all__ = ["FIRST_SORT", "RATES", "SORTS", "Board", "TimerView", "pause_after"]

RATES = 120
"""Samples of the throughput, one for each status."""

LAST_WORDS = 160
"""Characters of a session's last event."""

LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 5.0
_SHARE = 10.0
_ABOUT_TURNS = ("turn_started", "turn_completed", "prompt_accepted", "approval_requested", "approval_resolved")
_WRITING = "writing ..."
_RANKS = ("asking", "running", "waiting", "failed", "resting")
_Key = tuple[str, str]


def pause_after(took: float) -> float:
    """Return the seconds until the next request for the status: one second, or more if the answer takes long."""
    return min(max(LEAST_PAUSE_S, took * _SHARE), MOST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class TimerView:
    """Timer of the watchdog that fires first."""

    session_id: str
    phase: str
    in_s: float


@dataclass
class Board:
    """State of the view. While the daemon is not `connected`, the view shows its last status."""

    status: JsonObject = field(default_factory=dict)
    at: float = 0.0
    connected: bool = False
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES))
    approvals: dict[_Key, Event] = field(default_factory=dict)
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)
    _heard_at: dict[str, float] = field(default_factory=dict)

    # -- input

    def take_status(self, status: JsonObject, now: float) -> None:
        """Take the answer to `daemon/status`. `now` is monotonic, in seconds."""
        daemon = self.status.get("daemon") or {}
        if daemon.get("instance_id") == status["daemon"]["instance_id"] and now > self.at:
            before = {s["session_id"]: s["next_seq"] for s in self.sessions}
            new = sum(max(0, s["next_seq"] - before.get(s["session_id"], 1)) for s in status["sessions"])
            self.rates.append(new / (now - self.at))
        self.status, self.at = status, now
        known = {s["session_id"] for s in status["sessions"]}
        for kept in (self._last, self._heard_at):
            for gone in kept.keys() - known:
                del kept[gone]
        for key in [key for key in self.approvals if key[0] not in known]:
            del self.approvals[key]

    def take_event(self, event: Event, now: float) -> bool:
        """Take an event of any session. Return True if the status has changed, because a turn began or ended."""
        session_id, kind = event["session_id"], event["type"]
        seq = int(event.get("seq") or event.get("to_seq") or 0)
        self._last[session_id] = seq, clip(f"{kind} {words(event)}".rstrip(), LAST_WORDS)
        self._heard_at[session_id] = now
        if kind == "approval_requested":
            self.approvals[session_id, event["approval_id"]] = event
        elif kind == "approval_resolved":
            self.approvals.pop((session_id, event["approval_id"]), None)
        return kind in _ABOUT_TURNS

    def take_approvals(self, approvals: Iterable[Event]) -> None:
        """Take the answer to `approval/list`: exactly these approvals are open."""
        self.approvals = {(a["session_id"], a["approval_id"]): a for a in approvals}

    # -- output

    @property
    def sessions(self) -> list[JsonObject]:
        """Return the rows of the daemon."""
        return list(self.status.get("sessions") or ())

    @property
    def approvals_doubtful(self) -> bool:
        """Tell whether the daemon counts other approvals than this view, so that the view must list them again."""
        return sum(s.get("approvals") or 0 for s in self.sessions) != len(self.approvals)

    def session(self, session_id: str | None) -> JsonObject | None:
        return next((s for s in self.sessions if s["session_id"] == session_id), None)

    def shown(self, order: str, wanted: str, now: float) -> list[JsonObject]:
        """Return the sessions that match all words of `wanted`, by `order` (of `SORTS`)."""
        parts = wanted.lower().split()
        found = [s for s in self.sessions if all(part in _haystack(s) for part in parts)] if parts else self.sessions
        return sorted(found, key=lambda s: (SORTS[order](self, s, now), s["session_id"]))

    def idle_s(self, session: JsonObject, now: float) -> float | None:
        """Return the seconds without an event of the running turn, or None without a turn."""
        if session.get("idle_s") is None:
            return None
        said = float(session["idle_s"]) + (now - self.at)
        heard = self._heard_at.get(session["session_id"])
        return max(0.0, said if heard is None else min(said, now - heard))

    def age_s(self, session: JsonObject, now: float) -> float:
        return float(session.get("age_s") or 0.0) + (now - self.at)

    def row(self, session: JsonObject, now: float) -> JsonObject:
        """Return the row with its times as of `now`, and its last event in words."""
        timer = session.get("next_timer")
        return {
            **session,
            "idle_s": self.idle_s(session, now),
            "age_s": self.age_s(session, now),
            "next_timer": timer and {**timer, "fires_in_s": float(timer["fires_in_s"]) - (now - self.at)},
            "last_words": self.last_words(session),
        }

    def last_words(self, session: JsonObject) -> str:
        """Return the last event of a session, or only its type if this view did not receive the event."""
        seq, heard = self._last.get(session["session_id"], (0, ""))
        last = session.get("last_event") or {}
        if int(last.get("seq") or 0) <= seq:
            return heard
        return _WRITING if last.get("type") == "content_delta" else str(last.get("type") or "-")

    def next_timer(self, now: float) -> TimerView | None:
        timers = [
            TimerView(s["session_id"], t["phase"], max(0.0, float(t["fires_in_s"]) - (now - self.at)))
            for s in self.sessions
            if (t := s.get("next_timer"))
        ]
        return min(timers, key=lambda timer: timer.in_s) if timers else None

    @property
    def limited(self) -> list[JsonObject]:
        """Return the accounts near or at their limit, or that hold turns."""
        return limited_accounts(self.status)

    def question(self, pinned: _Key | None, selected: str | None) -> Event | None:
        """Return the approval to show: the `pinned` one while it is open, else the oldest of the selected session, else the oldest."""
        if pinned in self.approvals:
            return self.approvals[pinned]
        of_selected = (a for (session_id, _), a in self.approvals.items() if session_id == selected)
        return next(of_selected, None) or next(iter(self.approvals.values()), None)


def _haystack(s: JsonObject) -> str:
    labels = (f"{name}={value}" for name, value in (s.get("labels") or {}).items())
    names = ("session_id", "backend", "state", "phase", "model", "cwd", "branch", "title")
    parts = (*(s.get(name) for name in names), status_of(s)[0], *labels)
    return " ".join(str(part) for part in parts if part).lower()


def _attention(board: Board, s: JsonObject, _now: float) -> tuple[int, float]:
    """Order sessions: pending approvals first, then running, queued, failed and idle ones; the newest first."""
    return _RANKS.index(status_of(s)[1]), float(s.get("age_s") or 0.0)


def _total(s: JsonObject) -> int:
    return sum(v for name, v in (s.get("tokens") or {}).items() if name.endswith("_tokens") and isinstance(v, int))


FIRST_SORT = "attention"
SORTS: dict[str, Callable[[Board, JsonObject, float], Any]] = {
    "attention": _attention,
    "session": lambda board, s, now: s["session_id"],
    "idle": lambda board, s, now: -(board.idle_s(s, now) or -1.0),
    "age": lambda board, s, now: -board.age_s(s, now),
    "memory": lambda board, s, now: -(s.get("rss_bytes") or 0),
    "tokens": lambda board, s, now: -_total(s),
    "cost": lambda board, s, now: -(s.get("cost_usd") or 0.0),
}
"""Orders of the table: a sort key from the board, a session and the time. The key `s` cycles through them."""

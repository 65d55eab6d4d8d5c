"""Timeline: the events of a session as one lane of segments and marks over a span of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from clisup.cli.export.facts import title_of
from clisup.cli.export.parts import SessionHead
from clisup.cli.views.events import tool_words, words
from clisup.cli.views.terminal import brief, clip
from clisup.client.raw import JsonObject

__all__ = [
    "EVENTS", "KINDS", "LEAST_S", "MARKS", "MOST_LISTED", "MOST_MARKS", "MOST_SEGMENTS", "SPANS", "Lane", "LaneMark",
    "LaneReader", "LaneSegment", "Tick", "Window", "lane_of", "ticks_of", "window_of",
]  # fmt: skip

EVENTS = [
    "turn_started", "turn_completed", "message_start", "message_stop", "message", "tool_use", "tool_result", "retry", "task",
    "approval_requested", "approval_resolved", "watchdog", "process_exited", "notice",
]  # fmt: skip
"""Types of events that a lane is made of."""

SPANS = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 24 * 3600.0}
"""Seconds of the spans that a page offers."""

KINDS = {
    "model": "Model",
    "tool": "Tool",
    "approval": "Approval",
    "retry": "Retry",
    "background": "Background",
    "idle": "Idle",
}
"""Kinds of segments and their names."""

MARKS = {
    "restart": "Daemon restarted", "warned": "Watchdog warned", "fired": "Watchdog ended the turn",
    "credited": "Watchdog gave more time", "limit": "Limit of the watchdog",
}  # fmt: skip
"""Kinds of marks and their names."""

MOST_SEGMENTS = 500
"""Segments of a lane at most, roughly. Shorter ones than this part of the span are drawn with their neighbours."""

MOST_MARKS = 100
"""Marks of a lane at most. The newest stay."""

MOST_LISTED = 60
"""Segments of a lane in its table at most. The newest stay."""

_AHEAD = 0.05
"""Part of the span that lies after now, for the limits of the watchdog."""

LEAST_S = 30.0
"""Seconds of a window at least."""

_STEPS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 6 * 3600)
_MOST_TICKS = 6
_WORDS = 100


class Window(NamedTuple):
    """Span of time on a page, in seconds since the epoch. The time from `now` to `end` is to come."""

    start: float
    now: float
    end: float

    def part(self, at: float) -> float:
        """Return the place of a time in percent of the width."""
        return round(100 * min(1.0, max(0.0, (at - self.start) / (self.end - self.start))), 3)


class LaneSegment(NamedTuple):
    """Time in which a session did one kind of thing. `x` and `width` are percents of the lane."""

    kind: str
    start: float
    end: float
    turn: str
    words: str
    x: float = 0.0
    width: float = 0.0

    @property
    def name(self) -> str:
        """Return the segment in words."""
        parts = [
            KINDS[self.kind],
            self.words,
            f"{clock(self.start)} to {clock(self.end)}",
            brief(self.end - self.start),
            self.turn,
        ]
        return ", ".join(part for part in parts if part)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Return the row of the table: time, duration, kind and words."""
        return clock(self.start), brief(self.end - self.start), KINDS[self.kind], self.words


class LaneMark(NamedTuple):
    """Event at one moment of a lane. `x` is a percent of the lane."""

    kind: str
    at: float
    words: str
    x: float

    @property
    def name(self) -> str:
        """Return the mark in words."""
        return ", ".join(part for part in (MARKS[self.kind], clock(self.at), self.words) if part)


class Lane(NamedTuple):
    """Session on the timeline. `listed` are its last segments for the table, `cut_x` ends the part that is not known."""

    session_id: str
    title: str
    summary: str
    segments: list[LaneSegment]
    marks: list[LaneMark]
    listed: list[LaneSegment]
    cut_x: float


class Tick(NamedTuple):
    """Time on the axis, at `x` percent."""

    x: float
    words: str


def window_of(name: str, now: float, begin: float | None = None) -> Window:
    """Return the window of a span in `SPANS`. It begins later if nothing happened before `begin`."""
    start = now - SPANS[name]
    if begin is not None:
        start = max(start, min(begin, now - LEAST_S))
    return Window(start, now, now + (now - start) * _AHEAD)


def ticks_of(window: Window) -> list[Tick]:
    """Return a few times on the axis, in UTC."""
    step = next(step for step in _STEPS if (window.end - window.start) / step <= _MOST_TICKS)
    first = int(window.start // step + 1) * step
    return [Tick(window.part(at), clock(at)[: 8 if step < 60 else 5]) for at in range(first, int(window.now) + 1, step)]


def lane_of(row: JsonObject, reader: LaneReader, window: Window, *, whole: bool) -> Lane:
    """Return the lane of a session. `whole`: the reader has all events of the session."""
    segments = reader.segments(window.now, running=bool(row.get("turn_id")))
    shown = [one._replace(start=max(one.start, window.start)) for one in segments if one.end > window.start]
    shown = _merged(shown, (window.end - window.start) / MOST_SEGMENTS)
    shown = [one._replace(x=window.part(one.start), width=round(window.part(one.end) - window.part(one.start), 3))
             for one in shown]  # fmt: skip
    marks = [LaneMark(*mark, window.part(mark[1])) for mark in [*reader.marks, *_limit(row, window)]
             if window.start <= mark[1] <= window.end][-MOST_MARKS:]  # fmt: skip
    unknown = 0.0 if whole or reader.first is None else window.part(reader.first)
    return Lane(
        str(row["session_id"]),
        title_of(SessionHead(row, "")),
        _summary(shown, marks),
        shown,
        marks,
        shown[-MOST_LISTED:],
        unknown,
    )


class LaneReader:
    """Reader of the events of one session in order. It tells what the session does, as the watchdog's phases do."""

    def __init__(self, events: Iterable[JsonObject] = ()) -> None:
        self.first: float | None = None
        self.marks: list[tuple[str, float, str]] = []
        self._done: list[LaneSegment] = []
        self._at = 0.0
        self._turn = self._ended = ""
        self._tools: dict[str, str] = {}
        self._approvals: dict[str, str] = {}
        self._tasks: dict[str, str] = {}
        self._retry = ""
        self._answered = False
        self._over = False
        for event in events:
            self.take(event)

    def take(self, event: JsonObject) -> None:
        """Take an event: the time up to it belongs to what the session did before."""
        at = max(self._at, _seconds(event.get("ts")))
        if not at:
            return  # a gap
        if self.first is None:
            self.first = at
        else:
            self._close(at)
        self._at = at
        self._fold(event)
        self._mark(event, at)

    def segments(self, now: float, *, running: bool) -> list[LaneSegment]:
        """Return all segments up to now."""
        if self.first is not None and not self._over:
            if not running and self._turn:
                self._end_turn()
            self._close(max(now, self._at))
        return self._done

    def _close(self, at: float) -> None:
        if at > self._at and not self._over:
            kind, said = self._state()
            last = self._done[-1] if self._done else None
            if last and (last.kind, last.turn, last.words, last.end) == (kind, self._turn, said, self._at):
                self._done[-1] = last._replace(end=at)
            else:
                self._done.append(LaneSegment(kind, self._at, at, self._turn, said))

    def _state(self) -> tuple[str, str]:
        if self._tasks and (not self._turn or (self._answered and not self._approvals)):
            return "background", _joined(self._tasks)
        if not self._turn:
            return "idle", ""
        if self._approvals:
            return "approval", _joined(self._approvals)
        if self._tools:
            return "tool", _joined(self._tools)
        return ("retry", self._retry) if self._retry else ("model", "")

    def _fold(self, event: JsonObject) -> None:
        kind = event["type"]
        turn = str(event.get("turn_id") or "")
        if (
            turn and turn not in (self._turn, self._ended) and kind != "turn_completed"
        ):  # a late event of the last turn begins none
            self._turn = turn
        if kind == "tool_use":
            self._tools[str(event.get("tool_use_id"))] = clip(tool_words(event), _WORDS)
        elif kind == "tool_result":
            self._tools.pop(str(event.get("tool_use_id")), None)
        elif kind == "approval_requested":
            self._approvals[str(event.get("approval_id"))] = clip(str(event.get("tool_name")), _WORDS)
        elif kind == "approval_resolved":
            self._approvals.pop(str(event.get("approval_id")), None)
        elif kind == "task":
            self._task(event)
        elif kind == "turn_completed":
            self._ended = turn
            self._end_turn()
        elif kind == "process_exited":
            self._tasks.clear()
        self._requests(event)
        self._over = kind == "notice" and event.get("code") == "closed"

    def _requests(self, event: JsonObject) -> None:
        """Note a repeated request, and whether the model's answer has ended."""
        kind = event["type"]
        if kind == "retry":
            self._retry = clip(words(event), _WORDS) or "retry"
        elif kind in ("message_start", "message_stop", "message", "tool_use", "turn_started"):
            self._retry = ""
            if not event.get("parent_tool_use_id") and kind in ("message_start", "message_stop"):
                self._answered = kind == "message_stop" and event.get("stop_reason") == "end_turn"

    def _task(self, event: JsonObject) -> None:
        name = str(event.get("task_id"))
        if event.get("state") == "running":
            self._tasks[name] = clip(str(event.get("description") or event.get("kind") or "task"), _WORDS)
        else:
            self._tasks.pop(name, None)

    def _end_turn(self) -> None:
        self._turn, self._retry, self._answered = "", "", False
        self._tools.clear()
        self._approvals.clear()

    def _mark(self, event: JsonObject, at: float) -> None:
        if event["type"] == "watchdog" and event.get("action") in MARKS:
            self.marks.append((str(event["action"]), at, clip(words(event), _WORDS)))
        elif event["type"] == "notice" and event.get("code") == "adopted":
            self.marks.append(("restart", at, clip(str(event.get("message") or ""), _WORDS)))


def clock(at: float) -> str:
    """Return a time of day in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _merged(segments: list[LaneSegment], least: float) -> list[LaneSegment]:
    """Join segments that are too short to see with the next one. The longer of the two gives the kind."""
    kept: list[LaneSegment] = []
    for one in segments:
        last = kept[-1] if kept else None
        if last and last.end == one.start and last.end - last.start < least:
            longer = max(last, one, key=lambda each: each.end - each.start)
            kept[-1] = longer._replace(start=last.start, end=one.end)
            continue
        kept.append(one)
    return kept


def _limit(row: JsonObject, window: Window) -> list[tuple[str, float, str]]:
    """Return when the watchdog acts next, if the session stays silent."""
    timer = row.get("next_timer")
    if not timer or timer.get("fires_in_s") is None:
        return []
    limit = f"{timer['phase']}, {brief(float(timer['limit_s']))}"
    return [("limit", window.now + float(timer["fires_in_s"]), clip(limit, _WORDS))]


def _summary(segments: list[LaneSegment], marks: list[LaneMark]) -> str:
    """Return the lane in words: the time of each kind, and the marks."""
    spent = {kind: sum(one.end - one.start for one in segments if one.kind == kind) for kind in KINDS}
    parts = [f"{KINDS[kind]} {brief(seconds)}" for kind, seconds in spent.items() if seconds >= 0.5]
    counts = {kind: sum(mark.kind == kind for mark in marks) for kind in MARKS}
    parts += [f"{MARKS[kind]}: {number}" for kind, number in counts.items() if number]
    return ", ".join(parts) or ("Less than a second" if segments else "Nothing in this time")


def _joined(names: dict[str, str]) -> str:
    return clip(", ".join(list(names.values())[:4]), _WORDS)


def _seconds(ts: object) -> float:
    try:
        return datetime.fromisoformat(str(ts)).timestamp()
    except ValueError:
        return 0.0

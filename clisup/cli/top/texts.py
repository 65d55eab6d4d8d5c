"""Texts of `clisup top`: the head, the table of sessions, and the events of a followed session. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from clisup.cli.status.columns import failed, outcome, short_ids
from clisup.cli.top.model import Board
from clisup.cli.views.events import Event, words
from clisup.cli.views.terminal import clip, cost, count, plain, size, tokens
from clisup.client.raw import JsonObject

__all__ = [
    "BACK",
    "LINE",
    "Span",
    "Tail",
    "TopRow",
    "TopTable",
    "brief",
    "event_spans",
    "head_lines",
    "memory",
    "sparkline",
    "start_after",
    "table",
]

Span = tuple[str, str]
"""A text and its tone: plain, good, warn, bad, dim, strong, or the kind of a row or event."""


# -- the table ----------------------------------------------------------------------------------------------------------

LEAST_LAST = 22
"""Least width of the last event. Other columns give way first."""

_GAP = "  "
_GIVE_WAY = ("NEXT TIMER", "MODEL", "PID", "AGE", "COST", "MEM", "TOKENS", "TURN", "BACKEND", "IDLE")
_NARROW = {"BACKEND": 12, "PHASE": 14, "OUTCOME": 22, "MODEL": 18, "TURN": 7, "NEXT TIMER": 18}
_RIGHT = ("IDLE", "AGE", "PID", "MEM", "TOKENS", "COST")


class TopRow(NamedTuple):
    """Row of a session, cut to the table's width. `tone` is asking, running, waiting, failed or resting."""

    session_id: str
    text: str
    tone: str


class TopTable(NamedTuple):
    """Head and rows of the table."""

    head: str
    lines: list[TopRow]


def table(board: Board, sessions: Sequence[JsonObject], width: int, now: float) -> TopTable:
    """Return the rows of these sessions in this order, each of exactly `width` characters."""
    short = short_ids([s["session_id"] for s in board.sessions])
    cells = [{name: plain(cell(board, s, now)) or "-" for name, cell in CELLS.items()} for s in sessions]
    for s, row in zip(sessions, cells, strict=True):
        row["SESSION"] = short.get(s["session_id"], s["session_id"][:8])
    widths = _widths(cells, width)
    lines = [TopRow(s["session_id"], _joined(row, widths), _tone(s)) for s, row in zip(sessions, cells, strict=True)]
    return TopTable(_joined({name: name for name in widths}, widths), lines)


def _widths(cells: list[dict[str, str]], width: int) -> dict[str, int]:
    wanted = {name: max([len(name), *(len(row[name]) for row in cells)]) for name in CELLS}
    wanted = {name: min(at, _NARROW.get(name, at)) for name, at in wanted.items() if name != "LAST EVENT"}
    for name in _GIVE_WAY:
        if sum(wanted.values()) + len(_GAP) * len(wanted) + LEAST_LAST <= width:
            break
        del wanted[name]
    return {**wanted, "LAST EVENT": max(0, width - sum(wanted.values()) - len(_GAP) * len(wanted))}


def _joined(row: dict[str, str], widths: dict[str, int]) -> str:
    parts = [
        clip(row[name], at).rjust(at) if name in _RIGHT else clip(row[name], at).ljust(at)
        for name, at in widths.items()
    ]
    total = sum(widths.values()) + len(_GAP) * (len(widths) - 1)
    return _GAP.join(parts)[:total].ljust(total)


def _tone(s: JsonObject) -> str:
    if s.get("approvals"):
        return "asking"
    if s.get("turn_id"):
        return "running"
    return "waiting" if s.get("queue") else "failed" if failed(s) else "resting"


def brief(seconds: float | None) -> str:
    """Return a duration for a narrow column, as `8s`, `3m`, `2h05m` or `4d1h`."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 100:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24}h"


def memory(number: int | None) -> str:
    """Return bytes as `812K`, `52M` or `1.2G`."""
    if number is None:
        return "-"
    if number < 1024**2:
        return f"{number / 1024:.0f}K"
    return f"{number / 1024**2:.0f}M" if number < 1000 * 1024**2 else f"{number / 1024**3:.1f}G"


def _phase(s: JsonObject) -> str:
    """Return the turn's phase, or the session's state without a turn."""
    if s.get("approvals"):
        return f"approval ({s['approvals']})"
    if s.get("phase"):
        return str(s["phase"])
    return "held" if s.get("held") else str(s["state"])


def _turn(s: JsonObject) -> str:
    """Return the turn and the number of queued ones, as `t3 +2`."""
    queued = len(s.get("queue") or ())
    return f"{s.get('turn_id') or '-'}{f' +{queued}' if queued else ''}"


def _timer(board: Board, s: JsonObject, now: float) -> str:
    if not (timer := s.get("next_timer")):
        return "-"
    return f"{timer['phase']} {brief(max(0.0, float(timer['fires_in_s']) - (now - board.at)))}"


CELLS: dict[str, Callable[[Board, JsonObject, float], str]] = {
    "SESSION": lambda board, s, now: s["session_id"][:8],
    "BACKEND": lambda board, s, now: s["backend"],
    "PHASE": lambda board, s, now: _phase(s),
    "OUTCOME": lambda board, s, now: outcome(s),
    "TURN": lambda board, s, now: _turn(s),
    "IDLE": lambda board, s, now: brief(board.idle_s(s, now)),
    "AGE": lambda board, s, now: brief(board.age_s(s, now)),
    "PID": lambda board, s, now: str(s.get("pid") or "-"),
    "MEM": lambda board, s, now: memory(s.get("rss_bytes")),
    "TOKENS": lambda board, s, now: tokens(s.get("tokens")),
    "COST": lambda board, s, now: cost(s.get("cost_usd")),
    "MODEL": lambda board, s, now: s.get("model") or "-",
    "NEXT TIMER": _timer,
    "LAST EVENT": lambda board, s, now: board.last_words(s),
}
"""Columns in the order of the table, each with the function for its cells."""


# -- the head -----------------------------------------------------------------------------------------------------------

_BARS = "▁▂▃▄▅▆▇█"
_STATES = {"ready": "good", "starting": "warn", "draining": "warn"}


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars, scaled by the largest of them."""
    if width <= 0 or not values:
        return ""
    shown = list(values)[-width:]
    top = max(shown)
    last = len(_BARS) - 1
    return "".join(_BARS[0] if top <= 0 else _BARS[min(last, int(value / top * last + 0.5))] for value in shown)


def head_lines(board: Board, width: int, now: float) -> list[list[Span]]:
    """Return two lines, and a third for a limited account or a faulty disk."""
    if not board.status:
        return [[("clisup: connecting ...", "warn")], []]
    return [
        _fitted(line, width) for line in (_who(board, now), _how_busy(board, width, now), *_troubles(board)) if line
    ]


def _who(board: Board, now: float) -> list[Span]:
    d = board.status["daemon"]
    tone = _STATES.get(d["state"], "bad")
    state: list[Span] = [(f"● {d['state']}", tone)]
    if not board.connected:
        state = [("● reconnecting", "bad"), (" (the view shows the last status)", "warn")]
    return [
        ("clisup ", "strong"), (f"{d['version']} ", "plain"), *state,
        (f"  turns {d['running']}/{d['max_running']}", "plain"),
        (f", {d['waiting']} waiting" if d["waiting"] else "", "warn"),
        (f"  up {brief(float(d['uptime_s']) + now - board.at)}  pid {d['pid']}  mem {size(d['rss_bytes'])}", "plain"),
        (f"  {len(board.status.get('clients') or ())} clients  {d['socket']}", "dim"),
    ]  # fmt: skip


def _how_busy(board: Board, width: int, now: float) -> list[Span]:
    totals = board.status["totals"]
    rate = board.rates[-1] if board.rates else 0.0
    timer = board.next_timer(now)
    turns = totals["turns"]
    failed = sum(turns.get(name, 0) for name in ("failed", "timed_out"))
    return [
        (f"{_rate(rate)} events/s ", "plain"), (sparkline(board.rates, 12 if width < 100 else 24), "good"),
        (f"  next timer {timer.phase} {brief(timer.in_s)}" if timer else "  no timer", "warn" if timer and timer.in_s < 10 else "plain"),
        (f" {timer.session_id[:8]}" if timer else "", "dim"),
        (f"  done {turns.get('completed', 0)}", "plain"), (f" failed {failed}" if failed else "", "bad"),
        (f"  tokens {tokens(totals.get('tokens'))}  {cost(totals.get('cost_usd'))}", "plain"),
        (f"  {turns.get('interrupted', 0)} interrupted, watchdog fired {totals['watchdog_fired']}", "dim"),
    ]  # fmt: skip


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate < 10 else count(int(rate))


def _troubles(board: Board) -> list[list[Span]]:
    lines: list[list[Span]] = []
    storage = board.status["daemon"].get("storage") or {}
    if storage.get("state", "ok") != "ok":
        lines.append([(f"storage {str(storage['state']).replace('_', ' ').upper()}: {storage.get('error')}", "bad")])
    if board.limited:
        lines.append([("limited  ", "bad"), ("  ".join(_account(a) for a in board.limited), "warn")])
    if damaged := board.status.get("damaged_sessions"):
        lines.append([(f"{len(damaged)} damaged sessions: see clisup status", "bad")])
    return lines


def _account(a: JsonObject) -> str:
    used = f" {a['utilization']:.0%}" if a.get("utilization") is not None else ""
    until = f" until {a['until']}" if a.get("until") else ""
    held = f", {len(a['waiting'])} held" if a["waiting"] else ""
    return f"{a['account']}: {a['state']} {a.get('limit_type') or ''}{used}{until}{held}"


def _fitted(spans: list[Span], width: int) -> list[Span]:
    """Fit spans into one line: leave out dim ones that do not fit, and cut others."""
    fitted: list[Span] = []
    left = width
    for raw, tone in spans:
        if not raw or left <= 0:
            continue
        text = plain(raw).replace("\n", " ")
        if len(text) > left and tone == "dim":
            break  # optional
        fitted.append((text if len(text) <= left else clip(text, left), tone))
        left -= len(text)
    return fitted


# -- a followed session -------------------------------------------------------------------------------------------------

BACK = 2000
"""Past events at the beginning of a followed session, pieces of text included."""

LINE = 600
"""Characters of the line of an event."""

_KEPT = 4000
_ALARMS = ("permission_denied", "watchdog", "retry", "unparsed", "gap", "retracted", "stderr")
_TONES = {
    "message": "text",
    "tool_use": "tool",
    "tool_result": "tool",
    "turn_started": "turn",
    "turn_completed": "turn",
    "approval_requested": "asking",
    "approval_resolved": "asking",
} | dict.fromkeys(_ALARMS, "alarm")
_HIDDEN = ("message_start", "message_stop", "status", "usage")


def start_after(session: Event) -> int:
    """Return the seq after which the followed events begin."""
    return max(int(session["next_seq"]) - 1 - BACK, int(session["first_seq"]) - 1, 0)


def event_spans(event: Event) -> list[Span]:
    """Return `12:34:56  tool_use  Bash ls` as spans, or no span for an event that only frames others."""
    kind = str(event["type"])
    if kind in _HIDDEN:
        return []
    bad = event.get("error") or event.get("is_error")
    text = f"pid {event['pid']}" if kind == "process_started" else clip(words(event), LINE)
    return [
        (f"{_time(event.get('ts'))}  ", "dim"),
        (f"{clip(kind, 18):<18}  ", "dim" if kind not in _TONES and not bad else "strong"),
        (text, "bad" if bad else _TONES.get(kind, "note")),
    ]


def _time(ts: str | None) -> str:
    return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S") if ts else "--:--:--"


class Tail:
    """Text of the message that is being written, until the whole message arrives."""

    def __init__(self) -> None:
        self._text = ""

    def take(self, event: Event) -> bool:
        """Keep a piece of text and return True. An event that ends the message clears the text."""
        if event["type"] == "content_delta":
            if event.get("kind") == "text":
                self._text = (self._text + str(event.get("text") or ""))[-_KEPT:]
            return True
        if event["type"] in ("message", "message_start", "retracted", "turn_completed"):
            self._text = ""
        return False

    def shown(self, width: int) -> str:
        """Return the end of the text, on one line of at most `width` characters."""
        line = clip(self._text, _KEPT)
        return line if len(line) <= width else "…" + line[-(width - 1) :]

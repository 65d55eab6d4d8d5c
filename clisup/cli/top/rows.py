"""The table of sessions as lines of text: which columns there is room for, how wide each is, and what is in it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from clisup.cli.status.columns import failed, outcome, short_ids
from clisup.cli.top.model import Board
from clisup.cli.views.terminal import clip, cost, plain, tokens

__all__ = ["Line", "Table", "brief", "memory", "table"]

LEAST_LAST = 22
"""Columns that the last event gets at least, before others give way."""

_GAP = "  "
_GIVE_WAY = ("NEXT TIMER", "MODEL", "PID", "AGE", "COST", "MEM", "TOKENS", "TURN", "BACKEND", "IDLE")
_NARROW = {"BACKEND": 12, "PHASE": 14, "OUTCOME": 22, "MODEL": 18, "TURN": 7, "NEXT TIMER": 18}
_RIGHT = ("IDLE", "AGE", "PID", "MEM", "TOKENS", "COST")
_Session = dict[str, Any]


class Line(NamedTuple):
    """A session's row, cut to the table's width. `tone` is one of asking, running, waiting, failed, resting."""

    session_id: str
    text: str
    tone: str


class Table(NamedTuple):
    head: str
    lines: list[Line]


def table(board: Board, sessions: Sequence[_Session], width: int, now: float) -> Table:
    """The rows of these sessions in this order, each of exactly `width` characters."""
    short = short_ids([s["session_id"] for s in board.sessions])
    cells = [{name: plain(cell(board, s, now)) or "-" for name, cell in CELLS.items()} for s in sessions]
    for s, row in zip(sessions, cells, strict=True):
        row["SESSION"] = short.get(s["session_id"], s["session_id"][:8])
    widths = _widths(cells, width)
    lines = [Line(s["session_id"], _joined(row, widths), _tone(s)) for s, row in zip(sessions, cells, strict=True)]
    return Table(_joined({name: name for name in widths}, widths), lines)


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


def _tone(s: _Session) -> str:
    if s.get("approvals"):
        return "asking"
    if s.get("turn_id"):
        return "running"
    return "waiting" if s.get("queue") else "failed" if failed(s) else "resting"


def brief(seconds: float | None) -> str:
    """As `8s`, `3m`, `2h05m`, `4d1h`: what a narrow column has room for."""
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
    """As `812K`, `52M`, `1.2G`."""
    if number is None:
        return "-"
    if number < 1024**2:
        return f"{number / 1024:.0f}K"
    return f"{number / 1024**2:.0f}M" if number < 1000 * 1024**2 else f"{number / 1024**3:.1f}G"


def _phase(s: _Session) -> str:
    """The turn's phase; without a turn, the session's state."""
    if s.get("approvals"):
        return f"approval ({s['approvals']})"
    if s.get("phase"):
        return str(s["phase"])
    return "held" if s.get("held") else str(s["state"])


def _turn(s: _Session) -> str:
    """`t3 +2`: two more are queued."""
    queued = len(s.get("queue") or ())
    return f"{s.get('turn_id') or '-'}{f' +{queued}' if queued else ''}"


def _timer(board: Board, s: _Session, now: float) -> str:
    if not (timer := s.get("next_timer")):
        return "-"
    return f"{timer['phase']} {brief(max(0.0, float(timer['fires_in_s']) - (now - board.at)))}"


CELLS: dict[str, Callable[[Board, _Session, float], str]] = {
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
"""Column -> its text, in the order of the table."""

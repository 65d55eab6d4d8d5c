"""The lines above the table: who runs, how busy it is, which timer is next, which accounts are limited. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clisup.cli.top.model import Board
from clisup.cli.top.rows import brief
from clisup.cli.views.terminal import clip, cost, count, plain, size, tokens

__all__ = ["Span", "head_lines", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_STATES = {"ready": "good", "starting": "warn", "draining": "warn"}
Span = tuple[str, str]
"""A text and its tone: plain, good, warn, bad, dim or strong."""


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars of the largest of them; empty where there are none."""
    if width <= 0 or not values:
        return ""
    shown = list(values)[-width:]
    top = max(shown)
    last = len(_BARS) - 1
    return "".join(_BARS[0] if top <= 0 else _BARS[min(last, int(value / top * last + 0.5))] for value in shown)


def head_lines(board: Board, width: int, now: float) -> list[list[Span]]:
    """Two lines, three where an account is limited or a disk is in trouble."""
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
        state = [("● reconnecting", "bad"), (" (what is shown is the last that was heard)", "warn")]
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


def _account(a: dict[str, Any]) -> str:
    used = f" {a['utilization']:.0%}" if a.get("utilization") is not None else ""
    until = f" until {a['until']}" if a.get("until") else ""
    held = f", {len(a['waiting'])} held" if a["waiting"] else ""
    return f"{a['account']}: {a['state']} {a.get('limit_type') or ''}{used}{until}{held}"


def _fitted(spans: list[Span], width: int) -> list[Span]:
    """One line: from what does not fit on, dim parts are left out and others cut."""
    fitted: list[Span] = []
    left = width
    for raw, tone in spans:
        if not raw or left <= 0:
            continue
        text = plain(raw).replace("\n", " ")
        if len(text) > left and tone == "dim":
            break  # it may be left out
        fitted.append((text if len(text) <= left else clip(text, left), tone))
        left -= len(text)
    return fitted

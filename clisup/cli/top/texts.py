"""Texts of `clisup top`: the head, the table of sessions, and the events of a followed session. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from clisup.cli.status.columns import GO_FIRST, sessions_laid_out, short_ids, status_of
from clisup.cli.top.model import Board
from clisup.cli.views.events import Event, words
from clisup.cli.views.layout import GAP, cells_of, fitted
from clisup.cli.views.terminal import brief, clip, cost, count, plain, short_name, size, tokens
from clisup.client.raw import JsonObject

__all__ = [
    "BACK",
    "LINE",
    "Span",
    "Tail",
    "TopRow",
    "TopTable",
    "event_spans",
    "head_lines",
    "sparkline",
    "start_after",
    "table",
    "title_line",
]

Span = tuple[str, str]
"""A text and its tone: plain, good, warn, bad, dim, strong, or the kind of a row or event."""


# -- the table ----------------------------------------------------------------------------------------------------------

FAILED = 3
"""Lines of the head for boxes that do not answer."""

TITLE = 60
"""Characters of a title in a dialog."""

SHOWN = (
    "SESSION", "STATUS", "SINCE", "BACKEND", "TURN", "MODEL", "PID", "MEM", "TOKENS", "COST", "AGE", "NEXT-TIMER", "BRANCH",
    "DIRECTORY", "TITLE", "LAST",
)  # fmt: skip
"""Columns of the view."""

_LATER = ("DIRECTORY", "LAST", "SINCE", "TITLE", "STATUS")
LEAVE = (*(name for name in GO_FIRST if name not in _LATER), *_LATER)
"""Columns that a narrow screen loses, in this order: a live view keeps the last event longer than the directory."""


class TopRow(NamedTuple):
    """Row of a session, cut to the table's width. `tone` is asking, running, waiting, failed or resting.

    `status` is the place of the status in `text`: the tone is its colour.
    """

    session_id: str
    text: str
    tone: str
    status: tuple[int, int] = (0, 0)


class TopTable(NamedTuple):
    """Head and rows of the table."""

    head: str
    lines: list[TopRow]


def table(board: Board, sessions: Sequence[JsonObject], width: int, now: float) -> TopTable:
    """Return the rows of these sessions in this order, each of `width` columns of the screen."""
    ids = [s["session_id"] for s in [*board.sessions, *sessions]]
    shortest = short_ids([id_.rpartition("/")[2] for id_ in ids])
    short = {id_: shortest[id_.rpartition("/")[2]] for id_ in ids}
    rows = [board.row(s, now) for s in sessions]
    names = ("BOX", *SHOWN) if board.status.get("boxes") else SHOWN
    layout = sessions_laid_out(rows, names, width, LEAVE, short=short)
    head, *texts = (_exactly(line, width) for line in layout.lines())
    at = layout.names.index("STATUS") if "STATUS" in layout.names else None
    start = 0 if at is None else sum(map(len, layout.head[:at])) + GAP * at
    end = start if at is None else start + len(layout.head[at])
    lines = [
        TopRow(s["session_id"], text, status_of(s)[1], (start, end)) for s, text in zip(sessions, texts, strict=True)
    ]
    return TopTable(head, lines)


def _exactly(line: str, width: int) -> str:
    line = fitted(line, width)
    return line + " " * (width - cells_of(line))


def title_line(s: JsonObject | None, before: str = "\n") -> str:
    """Return the title of a session behind `before`, or "" without a title. Dialogs name what a key acts on."""
    return f"{before}{clip(str(s['title']), TITLE)}" if s and s.get("title") else ""


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
    if boxes := board.status.get("boxes"):
        answering = sum(not box["error"] for box in boxes)
        return [
            ("clisup fleet ", "strong"),
            (f"● {answering} of {len(boxes)} boxes answer", "good" if answering == len(boxes) else "bad"),
            (f"  turns {d['running']}/{d['max_running']}", "plain"),
            (f", {d['waiting']} waiting" if d["waiting"] else "", "warn"),
            (f"  mem {size(d['rss_bytes'])}", "plain"),
        ]
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
        (f" {short_name(timer.session_id)}" if timer else "", "dim"),
        (f"  done {turns.get('completed', 0)}", "plain"), (f" failed {failed}" if failed else "", "bad"),
        (f"  tokens {tokens(totals.get('tokens'))}  {cost(totals.get('cost_usd'))}", "plain"),
        (f"  {turns.get('interrupted', 0)} interrupted, watchdog fired {totals['watchdog_fired']}", "dim"),
    ]  # fmt: skip


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate < 10 else count(int(rate))


def _troubles(board: Board) -> list[list[Span]]:
    failed = [box for box in board.status.get("boxes", ()) if box["error"]]
    lines: list[list[Span]] = [[(f"{box['box']}  ", "bad"), (box["error"], "warn")] for box in failed[:FAILED]]
    if len(failed) > FAILED:
        lines.append([(f"{len(failed) - FAILED} more boxes do not answer: clisup fleet test", "bad")])
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

"""Columns of every list of sessions: their names, their cells, and the order in which a narrow terminal loses them.

`clisup status` loads this module, so the module imports almost nothing.
"""

from __future__ import annotations

import os
import time

from clisup.cli.views.layout import EMPTY, Column, Layout, lay_out
from clisup.cli.views.terminal import brief, cost, count, duration, size, tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clisup.cli.views.terminal import Ink
    from clisup.client.raw import JsonObject

__all__ = [
    "COLUMNS",
    "DEFAULT",
    "GO_FIRST",
    "UNFINISHED",
    "age_of",
    "busy",
    "checked_rows",
    "chosen",
    "directory",
    "inked",
    "left_out",
    "limited_accounts",
    "newest_first",
    "outcome",
    "sessions_laid_out",
    "short_ids",
    "since",
    "status_of",
]

UNFINISHED = "unfinished"
"""State of a session whose turn ran when the daemon and the keeper went away (clisup.daemon.ops.status_offline)."""

PARTS = 2
"""Last parts of a directory that a list shows."""

_INKS = {"asking": "yellow", "failed": "red", "running": "green"}


# -- the status of a session --------------------------------------------------------------------------------------------


def outcome(s: JsonObject) -> str:
    """Return the outcome of the last turn, as `failed: authentication`, or `-` while the next turn runs."""
    last = s.get("last_turn")
    if not last or s.get("turn_id"):
        return EMPTY
    kind = last["error_kind"] if last["outcome"] == "failed" else None
    return f"{last['outcome']}: {kind}" if kind else str(last["outcome"])


def status_of(s: JsonObject) -> tuple[str, str]:
    """Return what a person wants to know first, and its tone: asking, running, waiting, failed or resting.

    The text is `wants you` with open approvals, else what the turn does, else how the last turn ended.
    """
    if asked := s.get("approvals"):
        return f"wants you ({asked})" if asked > 1 else "wants you", "asking"
    state, ended = str(s.get("state") or EMPTY), outcome(s).replace("_", " ")
    if state == UNFINISHED:
        return state, "resting"
    if s.get("turn_id"):
        phase = s.get("phase")
        return f"{state}: {phase}" if phase and state == "running" else state, "running"
    if s.get("held"):
        return "held: rate limit", "waiting"
    if s.get("queue"):
        return "queued", "waiting"
    if state == "closed":
        return f"closed: {ended.partition(':')[0]}" if ended != EMPTY else state, "resting"
    if state == "failed":
        return ended if ended.startswith("failed") else state, "failed"
    if ended == EMPTY:
        return state, "resting"
    return ended, "failed" if ended.startswith(("failed", "timed out")) else "resting"


def busy(s: JsonObject) -> bool:
    """Tell whether the session works, waits for a slot, or waits for a person."""
    return bool(s.get("approvals") or s.get("turn_id") or s.get("queue") or s.get("held"))


def since(s: JsonObject) -> float | None:
    """Return the seconds since the last sign of life of the turn, else since the end of the last turn or the opening."""
    if s.get("turn_id") and s.get("idle_s") is not None:
        return float(s["idle_s"])
    ended = age_of((s.get("last_turn") or {}).get("ended_at"))
    return s.get("age_s") if ended is None else ended


def age_of(ts: str | None) -> float | None:
    """Return the seconds since a time such as `2026-01-01T00:00:00.000000Z`, or None without a time."""
    from datetime import datetime

    try:
        return max(0.0, time.time() - datetime.fromisoformat(ts).timestamp()) if ts else None
    except ValueError:
        return None


def newest_first(sessions: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the sessions by the time of their opening. Sessions of the same time keep their order."""
    return sorted(sessions, key=lambda s: str(s.get("created_at") or ""), reverse=True)


# -- cells --------------------------------------------------------------------------------------------------------------


def _phase(s: JsonObject) -> str:
    """Return the phase of the turn, as `approval (2)` with two pending approvals."""
    phase = s.get("phase") or EMPTY
    return f"{phase} ({s['approvals']})" if s.get("approvals") else phase


def _timer(s: JsonObject) -> str:
    timer = s.get("next_timer")
    return f"{timer['phase']} in {duration(max(timer['fires_in_s'], 0))}" if timer else EMPTY


def _turn(s: JsonObject) -> str:
    """Return the turn and the number of queued ones, as `t3 +2`."""
    queued = len(s.get("queue") or ())
    return f"{s.get('turn_id') or EMPTY}{f' +{queued}' if queued else ''}"


def _last(s: JsonObject) -> str:
    if words := s.get("last_words"):  # the view of `clisup top` has them
        return str(words)
    last = s.get("last_event")
    if not last:
        return EMPTY
    return f"{last['type']}, {duration(max(last['age_s'], 0))} ago" if "age_s" in last else str(last["type"])


def directory(path: str | None) -> str:
    """Return the last parts of a directory, as `~/work/app` or `…/build/app`."""
    if not path:
        return EMPTY
    home = os.path.expanduser("~").rstrip("/")
    named = "~" + path[len(home) :] if home and (path == home or path.startswith(f"{home}/")) else path
    parts = named.split("/")
    return named if len(parts) <= PARTS + 1 else "/".join(["…", *parts[-PARTS:]])


# fmt: off
COLUMNS: dict[str, Callable[[JsonObject], str]] = {
    "SESSION":    lambda s: str(s["session_id"]),
    "STATUS":     lambda s: status_of(s)[0],
    "SINCE":      lambda s: brief(since(s)),
    "BACKEND":    lambda s: str(s["backend"]),
    "MODEL":      lambda s: s.get("model") or EMPTY,
    "TURN":       _turn,
    "PID":        lambda s: str(s.get("pid") or EMPTY),
    "MEM":        lambda s: size(s.get("rss_bytes")),
    "TOKENS":     lambda s: tokens(s.get("tokens")),
    "COST":       lambda s: cost(s.get("cost_usd")),
    "AGE":        lambda s: brief(s.get("age_s")),
    "LAST":       _last,
    "BRANCH":     lambda s: s.get("branch") or EMPTY,
    "DIRECTORY":  lambda s: s.get("cwd") or EMPTY,
    "TITLE":      lambda s: s.get("title") or EMPTY,
    "STATE":      lambda s: str(s["state"]),
    "OUTCOME":    outcome,
    "PHASE":      _phase,
    "IDLE":       lambda s: duration(s.get("idle_s")),
    "QUEUE":      lambda s: str(len(s.get("queue") or [])),
    "NEXT-TIMER": _timer,
    "TURNS":      lambda s: count(s.get("turns")),
    "LABELS":     lambda s: ",".join(f"{k}={v}" for k, v in (s.get("labels") or {}).items()) or EMPTY,
    "ID":         lambda s: str(s["session_id"]),
    "BOX":        lambda s: s.get("box") or EMPTY,
}
# fmt: on
"""Every column by its name. SESSION is a short id that is unique in the table, ID the whole id."""

DEFAULT = tuple(COLUMNS)[: list(COLUMNS).index("TITLE") + 1]
"""Columns of `clisup status`."""

GO_FIRST = (
    "PID", "MEM", "NEXT-TIMER", "AGE", "LAST", "TURNS", "MODEL", "COST", "TOKENS", "TURN", "LABELS", "BRANCH", "BACKEND",
    "DIRECTORY", "SINCE", "TITLE", "STATUS",
)  # fmt: skip
"""Columns that a narrow terminal loses, in this order, after the empty ones."""

_FORMS = {
    "BACKEND": Column("BACKEND", least=8, most=16, common=True),
    "MODEL": Column("MODEL", least=8, most=24, common=True),
    "LAST": Column("LAST", least=18, most=100),
    "BRANCH": Column("BRANCH", least=8, most=28, common=True),
    "DIRECTORY": Column("DIRECTORY", least=10, most=32, keep_end=True),
    "TITLE": Column("TITLE", least=16, most=60),
    "LABELS": Column("LABELS", least=14, most=40),
    **{name: Column(name, right=True) for name in ("SINCE", "AGE", "PID", "MEM", "TOKENS", "COST", "TURNS")},
}


def checked_rows(rows: list[JsonObject]) -> list[JsonObject]:
    """Return rows of another daemon. Raise `TypeError`, `KeyError` or their like for rows that no table can show."""
    for row in rows:
        if not isinstance(row["session_id"], str):
            raise TypeError("an id is a text")
        busy(row)
        for cell in COLUMNS.values():
            cell(row)
    return rows


# -- tables -------------------------------------------------------------------------------------------------------------


def chosen(fields: str) -> list[str]:
    """Return the columns of a comma list. Raises `UsageError(usage)` for an unknown name."""
    names = [name.strip().upper().replace("_", "-") for name in fields.split(",") if name.strip()]
    wrong = [name for name in names if name not in COLUMNS]
    if names and not wrong:
        return names
    import difflib

    from clisup.errors import UsageError

    near = difflib.get_close_matches(wrong[0], COLUMNS, n=1, cutoff=0.5) if wrong else []
    did = f"did you mean {near[0]}? " if near else ""
    reason = f"there is no column {wrong[0]!r}" if wrong else "the list of columns is empty"
    raise UsageError(
        f"cannot show these columns, because {reason}", kind="usage", hint=f"{did}columns are: {', '.join(COLUMNS)}"
    )


def sessions_laid_out(
    sessions: Sequence[JsonObject],
    names: Sequence[str],
    width: int | None,
    go_first: Sequence[str] = (),
    *,
    short: dict[str, str] | None = None,
) -> Layout:
    """Lay out these columns of the sessions. With `go_first`, directories are short on a terminal.

    `short` has a name for each id; by default the shortest unique beginning.
    """
    named = short or short_ids([s["session_id"] for s in sessions])
    cells: dict[str, Callable[[JsonObject], str]] = {**COLUMNS, "SESSION": lambda s: named[s["session_id"]]}
    if go_first and width is not None:
        cells["DIRECTORY"] = lambda s: directory(s.get("cwd"))
    forms = [_FORMS.get(name, Column(name)) for name in names]
    if not go_first:  # chosen columns stay, and as whole as there is room
        forms = [form._replace(most=0) for form in forms]
    return lay_out(forms, [[cells[name](s) for name in names] for s in sessions], width, go_first)


def left_out(layout: Layout) -> str:
    """Return one line on the columns for which there was no room, or ""."""
    count = len(layout.gone)
    return f"({count} column{'s do' if count > 1 else ' does'} not fit: choose with -o)" if count else ""


def inked(layout: Layout, sessions: Sequence[JsonObject], ink: Ink) -> list[str]:
    """Return the lines with a bold head. STATUS and OUTCOME are coloured: red for failures, yellow if a person is wanted."""
    head, *lines = layout.lines()
    if not ink.on:
        return [head, *lines]
    painted = []
    for cells, s in zip(layout.rows, sessions, strict=True):
        style = _INKS.get(status_of(s)[1])
        parts = [
            ink(style, cell) if style and name in ("STATUS", "OUTCOME") and cell.strip() != EMPTY else cell
            for name, cell in zip(layout.names, cells, strict=True)
        ]
        painted.append("  ".join(parts).rstrip())
    return [ink("bold", head), *painted]


def limited_accounts(status: JsonObject) -> list[JsonObject]:
    """Return the accounts that are near or at their limit, or that hold turns."""
    return [a for a in status.get("accounts") or () if a["state"] in ("limited", "warned") or a["waiting"]]


def short_ids(ids: list[str]) -> dict[str, str]:
    """Return the shortest unique beginning of each id, with at least 8 characters."""
    width = 8
    while len({id_[:width] for id_ in ids}) < len(set(ids)):
        width += 4
    return {id_: id_[:width] for id_ in ids}

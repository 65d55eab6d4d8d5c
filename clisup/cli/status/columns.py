"""Columns of `clisup status`: their names, their cells, and the order in which a narrow terminal loses them.

`clisup status` loads this module, so the module imports almost nothing.
"""

from __future__ import annotations

from clisup.cli.views.terminal import cost, count, duration, size, table, tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clisup.cli.views.terminal import Ink
    from clisup.client.raw import JsonObject

__all__ = [
    "COLUMNS",
    "DEFAULT",
    "GO_FIRST",
    "chosen",
    "failed",
    "fitting",
    "limited_accounts",
    "outcome",
    "session_rows",
    "short_ids",
    "tinted",
]

GAP = 2  # spaces between two columns


def _phase(s: JsonObject) -> str:
    """Return the phase of the turn, as `approval (2)` with two pending approvals."""
    phase = s.get("phase") or "-"
    return f"{phase} ({s['approvals']})" if s.get("approvals") else phase


def _timer(s: JsonObject) -> str:
    timer = s.get("next_timer")
    return f"{timer['phase']} in {duration(max(timer['fires_in_s'], 0))}" if timer else "-"


def _last(s: JsonObject) -> str:
    last = s.get("last_event")
    if not last:
        return "-"
    return f"{last['type']}, {duration(max(last['age_s'], 0))} ago" if "age_s" in last else str(last["type"])


def outcome(s: JsonObject) -> str:
    """Return the outcome of the last turn, as `failed: authentication`, or `-` while the next turn runs."""
    last = s.get("last_turn")
    if not last or s.get("turn_id"):
        return "-"
    kind = last["error_kind"] if last["outcome"] == "failed" else None
    return f"{last['outcome']}: {kind}" if kind else str(last["outcome"])


def failed(s: JsonObject) -> bool:
    """Tell whether the session rests after a turn that failed or that the watchdog ended."""
    return outcome(s).startswith(("failed", "timed_out"))


# fmt: off
COLUMNS: dict[str, Callable[[JsonObject], str]] = {
    "SESSION":    lambda s: str(s["session_id"]),
    "BACKEND":    lambda s: str(s["backend"]),
    "STATE":      lambda s: str(s["state"]),
    "OUTCOME":    outcome,
    "PHASE":      _phase,
    "TURN":       lambda s: s.get("turn_id") or "-",
    "IDLE":       lambda s: duration(s.get("idle_s")),
    "AGE":        lambda s: duration(s.get("age_s")),
    "PID":        lambda s: str(s.get("pid") or "-"),
    "MEM":        lambda s: size(s.get("rss_bytes")),
    "TOKENS":     lambda s: tokens(s.get("tokens")),
    "COST":       lambda s: cost(s.get("cost_usd")),
    "LAST":       _last,
    "QUEUE":      lambda s: str(len(s.get("queue") or [])),
    "NEXT-TIMER": _timer,
    "TURNS":      lambda s: count(s.get("turns")),
    "MODEL":      lambda s: s.get("model") or "-",
    "LABELS":     lambda s: ",".join(f"{k}={v}" for k, v in (s.get("labels") or {}).items()) or "-",
    "DIRECTORY":  lambda s: s.get("cwd") or "-",
    "ID":         lambda s: str(s["session_id"]),
}
# fmt: on
"""Every column by its name. SESSION is a short id that is unique in the table, ID the whole id."""

DEFAULT = (
    "SESSION",
    "BACKEND",
    "STATE",
    "OUTCOME",
    "PHASE",
    "TURN",
    "IDLE",
    "AGE",
    "PID",
    "MEM",
    "TOKENS",
    "COST",
    "LAST",
)
GO_FIRST = ("LAST", "PID", "COST", "AGE", "MEM", "TOKENS", "BACKEND", "IDLE", "TURN", "PHASE")
"""Columns that a narrow terminal loses, in this order. Lines that are still too long are cut at the edge."""


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


def session_rows(sessions: Sequence[JsonObject], names: Sequence[str]) -> list[list[str]]:
    """Return the cells of these columns for every session; an empty cell is `-`."""
    short = short_ids([s["session_id"] for s in sessions])
    return [[short[s["session_id"]] if n == "SESSION" else COLUMNS[n](s) for n in names] for s in sessions]


def fitting(sessions: Sequence[JsonObject], width: int | None) -> tuple[str, list[str]]:
    """Return the default table with the columns that fit into `width` (None: all), and the names of the others."""
    names, gone = list(DEFAULT), []
    cells = session_rows(sessions, names)
    widths = {name: max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)}
    for name in GO_FIRST:
        if width is None or sum(widths[n] + GAP for n in names) - GAP <= width:
            break
        names.remove(name)
        gone.append(name)
    kept = [DEFAULT.index(name) for name in names]
    return table(names, [[row[at] for at in kept] for row in cells]), gone


def tinted(text: str, sessions: Sequence[JsonObject], ink: Ink) -> str:
    """Return the table of these sessions with a bold head. Rows of sessions whose last turn failed are red."""
    head, *rows = text.split("\n")
    return "\n".join(
        [ink("bold", head), *(ink("red", row) if failed(s) else row for row, s in zip(rows, sessions, strict=True))]
    )


def limited_accounts(status: JsonObject) -> list[JsonObject]:
    """Return the accounts that are near or at their limit, or that hold turns."""
    return [a for a in status.get("accounts") or () if a["state"] in ("limited", "warned") or a["waiting"]]


def short_ids(ids: list[str]) -> dict[str, str]:
    """Return the shortest unique beginning of each id, with at least 8 characters."""
    width = 8
    while len({id_[:width] for id_ in ids}) < len(set(ids)):
        width += 4
    return {id_: id_[:width] for id_ in ids}

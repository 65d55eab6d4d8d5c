"""`--fleet` of `status`, `sessions` and `approvals`: one table over all boxes, and one line for each box that fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from clisup.cli.fleet.asking import BoxAnswer, ask_all, everywhere, exit_code, failure_of, print_failures
from clisup.cli.fleet.members import known_members
from clisup.cli.lookup import all_sessions
from clisup.cli.status.columns import (
    DEFAULT,
    GO_FIRST,
    checked_rows,
    chosen,
    inked,
    left_out,
    newest_first,
    sessions_laid_out,
)
from clisup.cli.status.page import StatusOptions, chosen_sessions
from clisup.cli.views.approval_table import PendingApprovals, print_approvals
from clisup.cli.views.layout import Column, lay_out
from clisup.cli.views.terminal import Ink, cut, duration, size, width_of
from clisup.client.raw import JsonObject, RawClient

__all__ = ["show_fleet_approvals", "show_fleet_sessions", "show_fleet_status"]

MOST_SESSIONS = 10_000
"""Sessions of one box."""

_BOXES = (
    Column("BOX"), Column("STATE"), Column("VERSION", least=8, most=24), Column("RUNNING", right=True),
    Column("WAITING", right=True), Column("SESSIONS", right=True), Column("MEM", right=True), Column("UP", right=True),
)  # fmt: skip
_BOXES_LOSE = ("MEM", "UP", "WAITING", "VERSION")
_MEMBERS = (
    Column("BOX"), Column("STATE"), Column("BEAT", right=True), Column("VERSION", least=8, most=24),
    Column("RUNNING", right=True), Column("FREE", right=True), Column("LAG", right=True), Column("SESSIONS", right=True),
)  # fmt: skip
_MEMBERS_LOSE = ("VERSION", "LAG", "FREE")
_T = TypeVar("_T")


# -- status -------------------------------------------------------------------------------------------------------------


def show_fleet_status(options: StatusOptions) -> int:
    """Print the daemons and the sessions of all boxes. Return the exit code."""
    answers = ask_all(everywhere(), _status)
    if options.json:
        _print_json(answers, lambda status: status)
        return exit_code(answers)
    sessions = [{**s, "box": a.box} for a in answers if a.value is not None for s in a.value["sessions"]]
    ink, width = Ink(), width_of(sys.stdout)
    if options.quiet:
        for s in sessions:
            print(f"{s['box']}/{s['session_id']}")
    elif options.columns is not None:
        _print_sessions(newest_first(sessions), options.columns, ink, width)
    else:
        _print_boxes(answers, ink, width)
        shown, hidden = chosen_sessions(sessions)
        print()
        _print_sessions(shown, None, ink, width, DEFAULT)
        if hidden:
            print(f"{len(hidden)} older sessions at rest are not shown: clisup sessions --fleet lists them all")
    print_failures(answers)
    return exit_code(answers)


def _status(path: str) -> JsonObject:
    with RawClient.connect(path, name="clisup-status") as client:
        status: JsonObject = client.call("daemon/status")
    status["sessions"] = checked_rows(status["sessions"])
    _box_row("", status)
    return status


def _print_boxes(answers: Sequence[BoxAnswer[JsonObject]], ink: Ink, width: int | None) -> None:
    """Print the boxes, in a fleet with what their beats said. A box that is no member has no beat."""
    if (members := known_members()) is None:
        rows = [_box_row(a.box, a.value) if a.value is not None else [a.box, "away", *["-"] * 6] for a in answers]
        layout = lay_out(_BOXES, rows, width, _BOXES_LOSE)
    else:
        rows = [_member_row(a.box, a.value, members.get(a.box, {})) for a in answers]
        layout = lay_out(_MEMBERS, rows, width, _MEMBERS_LOSE)
    head, *lines = layout.lines()
    print(cut("\n".join([ink("bold", head), *lines]), width))


def _member_row(box: str, status: JsonObject | None, beat: JsonObject) -> list[str]:
    d = None if status is None else status["daemon"]
    state = str(d["state"]) if d is not None else "no daemon" if beat.get("state") == "daemon_down" else "away"
    age = "-" if beat.get("beat_s") is None else duration(float(beat["beat_s"]))
    version, running = (
        (beat.get("version", "-"), f"{beat.get('running', '-')}?") if d is None else (d["version"], d["running"])
    )
    sessions = beat.get("sessions", "-") if status is None else len(status["sessions"])
    row = [
        box,
        state,
        age,
        version,
        running,
        beat.get("free", "-") if d is not None else "-",
        beat.get("lag", "-"),
        sessions,
    ]
    return [str(cell)[:40] for cell in row]


def _box_row(box: str, status: JsonObject) -> list[str]:
    d = status["daemon"]
    turns = f"{int(d['running'])}/{int(d['max_running'])}"
    return [
        box, str(d["state"])[:20], str(d["version"])[:40], turns, str(int(d["waiting"])), str(len(status["sessions"])),
        size(d["rss_bytes"]), duration(float(d["uptime_s"])),
    ]  # fmt: skip


# -- sessions -----------------------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """Sessions of a box. A `copy` was read while the box is away: it shows the last known state."""

    rows: list[JsonObject]
    copy: bool


def show_fleet_sessions(
    states: Sequence[str | None], labels: dict[str, str], columns: Sequence[str] | None, listed: Sequence[str], *,
    as_json: bool,
) -> int:  # fmt: skip
    """Print the sessions of all boxes in these states, newest first. Return the exit code."""

    def ask(path: str) -> _Listed:
        with RawClient.connect(path, name="clisup-sessions") as client:
            rows = (row for state in states for row in all_sessions(client, state=state, labels=labels))
            return _Listed(checked_rows(list(islice(rows, MOST_SESSIONS))), bool(client.server["server"].get("copy")))

    answers = ask_all(everywhere(), ask)
    if as_json:
        _print_json(answers, lambda found: {"sessions": found.rows, **({"copy": True} if found.copy else {})})
        return exit_code(answers)
    found = [(f"{a.box} (away)" if a.value.copy else a.box, a.value.rows) for a in answers if a.value is not None]
    sessions = [{**s, "box": box} for box, rows in found for s in rows]
    _print_sessions(newest_first(sessions), columns, Ink(), width_of(sys.stdout), listed)
    print_failures(answers)
    return exit_code(answers)


def _print_sessions(
    sessions: list[JsonObject],
    columns: str | Sequence[str] | None,
    ink: Ink,
    width: int | None,
    listed: Sequence[str] = (),
) -> None:
    if not sessions:
        print("No sessions.")
        return
    named = chosen(columns) if isinstance(columns, str) else columns
    names = ["BOX", *(name for name in named or listed if name != "BOX")]
    layout = sessions_laid_out(sessions, names, width, () if named else GO_FIRST)
    print(cut("\n".join(inked(layout, sessions, ink)), width))
    if note := left_out(layout):
        print(ink("dim", note))


# -- approvals ----------------------------------------------------------------------------------------------------------


def show_fleet_approvals(pending: Callable[[str], PendingApprovals], *, as_json: bool) -> int:
    """Print the pending approvals of all boxes. `pending` asks one of them, by a client's path. Return the exit code."""
    answers = ask_all(everywhere(), pending)
    if as_json:
        _print_json(answers, lambda found: {"approvals": found.events})
        return exit_code(answers)
    rows = [[a.box, *row] for a in answers if a.value is not None for row in a.value.rows]
    if rows:
        print_approvals(rows, boxes=True)
    else:
        print("No pending approvals.")
    print_failures(answers)
    return exit_code(answers)


def _print_json(answers: Sequence[BoxAnswer[_T]], told: Callable[[_T], JsonObject]) -> None:
    found = [failure_of(a) if a.value is None else {"box": a.box, **told(a.value)} for a in answers]
    print(json.dumps({"boxes": found}, ensure_ascii=False))

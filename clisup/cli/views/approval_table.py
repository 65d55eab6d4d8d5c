"""Table of pending approvals: what is asked, for how long, and by which session. A narrow terminal loses columns."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clisup.cli.status.columns import directory
from clisup.cli.views.events import Event, visible
from clisup.cli.views.form import approval_words
from clisup.cli.views.layout import GAP, Column, Layout, lay_out
from clisup.cli.views.terminal import Ink, clip, cut, duration, width_of
from clisup.client.raw import JsonObject

__all__ = ["HEAD", "PendingApprovals", "approval_rows", "laid_out", "print_approvals", "short_id"]

HEAD = ("#", "ID", "SINCE", "BACKEND", "DIRECTORY", "TITLE", "ASKS")
_GO_FIRST = ("BACKEND", "DIRECTORY", "ID", "TITLE")
"""Columns that a narrow terminal loses, the first one first. `#` names an approval as well as ID does."""

_COLUMNS = (
    Column("#"), Column("ID"), Column("SINCE", right=True), Column("BACKEND", least=8, most=16),
    Column("DIRECTORY", least=10, most=28, keep_end=True), Column("TITLE", least=14, most=32), Column("ASKS", least=28, most=400),
)  # fmt: skip
_ASKS_IN_A_PIPE = 100
_ID_CHARS = 8


class PendingApprovals(NamedTuple):
    """Pending approvals of one daemon, and their rows in the table."""

    events: list[Event]
    rows: list[list[str]]


def short_id(approval: Event) -> str:
    """Return `3f2a9c1e/1:0e26d418`: enough of the ids to name the approval."""
    run, _, name = str(approval["approval_id"]).partition(":")
    long = len(name) > 2 * _ID_CHARS
    return visible(f"{approval['session_id'][:_ID_CHARS]}/{run}:{name[:_ID_CHARS] if long else name}")


def approval_rows(
    pending: Sequence[Event],
    numbers: Mapping[tuple[str, str], int],
    sessions: Mapping[str, JsonObject],
    ages: Sequence[float],
) -> list[list[str]]:
    """Return the cells of each approval. `sessions` are their rows by id; an unknown one gives empty cells."""
    rows = []
    for approval, age in zip(pending, ages, strict=True):
        about = sessions.get(approval["session_id"], {})
        number = numbers.get((approval["session_id"], approval["approval_id"]))
        known = [visible(str(about.get(name) or "")) for name in ("backend", "cwd", "title")]
        rows.append([str(number or ""), short_id(approval), duration(age), *known, visible(approval_words(approval))])
    return rows


def laid_out(rows: Sequence[Sequence[str]], width: int | None, *, boxes: bool = False) -> Layout:
    """Lay out the cells of `approval_rows` in `width` columns of the terminal; None for a pipe.

    With `boxes`, each row begins with the name of its box.
    """
    at = HEAD.index("DIRECTORY") + boxes
    columns = (Column("BOX"), *_COLUMNS) if boxes else _COLUMNS
    if width is None:
        return lay_out(columns, [[*row[:-1], clip(row[-1], _ASKS_IN_A_PIPE)] for row in rows], None)
    short = [[*row[:at], directory(row[at]), *row[at + 1 :]] for row in rows]
    return lay_out(columns, short, width, _GO_FIRST)


def print_approvals(rows: list[list[str]], *, boxes: bool = False) -> None:
    """Print the table: fitted on a terminal, all columns in a pipe."""
    ink, width = Ink(), width_of(sys.stdout)
    layout = laid_out(rows, width, boxes=boxes)
    lines = [ink("bold", layout.lines()[0])]
    lines += [(" " * GAP).join([*row[:-1], ink("yellow", row[-1].rstrip())]) for row in layout.rows]
    print(cut("\n".join(lines), width))

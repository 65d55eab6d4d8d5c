"""Table of pending approvals: what is asked, for how long, and by which session. A narrow terminal loses columns."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from clisup.cli.views.events import Event, visible
from clisup.cli.views.form import approval_words
from clisup.cli.views.terminal import Ink, clip, duration, table, width_of
from clisup.client.raw import JsonObject

__all__ = ["HEAD", "approval_rows", "fitted", "print_approvals", "short_id"]

HEAD = ("#", "ID", "SINCE", "BACKEND", "DIRECTORY", "TITLE", "ASKS")
_GO_FIRST = ("BACKEND", "DIRECTORY", "ID", "TITLE")
"""Columns that a narrow terminal loses, the first one first. `#` names an approval as well as ID does."""

_GAP = 2
_LEAST_ASKS = 28
_WIDEST = {"DIRECTORY": 28, "TITLE": 32}
_ASKS_IN_A_PIPE = 100
_ID_CHARS = 8


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


def fitted(rows: Sequence[Sequence[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells that fit into `width`: without empty columns, then without the least telling ones."""
    from rich.cells import cell_len, set_cell_size  # a pipe needs none of rich

    names = [name for number, name in enumerate(HEAD) if name == "ASKS" or any(row[number] for row in rows)]
    cells = {name: [_cut(name, row[HEAD.index(name)]) for row in rows] for name in names}

    def used(shown: list[str]) -> int:
        return sum(max(map(cell_len, [name, *cells[name]])) + _GAP for name in shown if name != "ASKS")

    for name in _GO_FIRST:
        if used(names) + _LEAST_ASKS <= width:
            break
        names = [kept for kept in names if kept != name]
    room = max(8, width - used(names))
    asks = [
        cell if cell_len(cell) <= room else set_cell_size(cell, room - 1).rstrip() + "…"
        for cell in (clip(cell, 4 * room) for cell in cells["ASKS"])
    ]
    cells["ASKS"] = asks
    return names, [[cells[name][number] for name in names] for number in range(len(rows))]


def _cut(name: str, cell: str) -> str:
    """Return the cell in the width of its column: the end of a path, the beginning of a title."""
    most = _WIDEST.get(name)
    if most is None or len(cell) <= most:
        return cell
    return "…" + cell[1 - most :] if name == "DIRECTORY" else cell[: most - 1] + "…"


def print_approvals(rows: list[list[str]]) -> None:
    """Print the table: fitted on a terminal, all columns in a pipe."""
    width = width_of(sys.stdout)
    if width is None:
        print(table(list(HEAD), [[*row[:-1], clip(row[-1], _ASKS_IN_A_PIPE)] for row in rows]))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, cells = fitted(rows, width)
    drawn = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name in head:
        drawn.add_column(name, no_wrap=True, style="yellow" if name == "ASKS" else "")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, width=width, highlight=False, color_system="auto" if Ink().on else None).print(drawn)

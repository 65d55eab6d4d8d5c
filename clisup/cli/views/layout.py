"""Layout of a list: the columns that fit into a width, and their cells. Pure.

Every list of sessions and approvals is laid out here. `clisup status` loads this module, so it imports almost nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from clisup.policy.secrets.plain_text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EMPTY", "GAP", "Column", "Layout", "cells_of", "fitted", "lay_out"]

GAP = 2
"""Spaces between two columns."""

EMPTY = "-"
"""Text of a cell without a value. A column of such cells is the first to be left out."""

SHORT = 8
"""Least width of the last column whose cells may be cut, before it is left out, too."""

_SPACES = {9: " ", 10: " "}


class Column(NamedTuple):
    """Column of a list. Its head is never cut.

    On a terminal cells are cut to `most`, and down to `least` before a column is left out. 0 means no such limit: with
    `least` 0 no cell is cut. `keep_end` keeps the end of a cut cell, of a path in whole parts. `right` aligns cells to the
    right. A `common` column gives its room to cut cells if all its own cells are the same.
    """

    name: str
    least: int = 0
    most: int = 0
    right: bool = False
    keep_end: bool = False
    common: bool = False


class Layout(NamedTuple):
    """Head and rows as padded cells; the names of the columns, and of those for which there was no room."""

    names: list[str]
    head: list[str]
    rows: list[list[str]]
    gone: list[str]

    def lines(self) -> list[str]:
        """Return the head and the rows as lines."""
        return [(" " * GAP).join(cells).rstrip() for cells in (self.head, *self.rows)]


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, go_first: Sequence[str] = ()
) -> Layout:
    """Lay out the cells of each row in `width` columns of the terminal. None means no limit: every cell stays whole.

    Columns give way in this order: empty ones, cells down to their `least`, then whole columns. If cells are still cut,
    `common` columns give way, too. `go_first` names the columns that may be left out, the least important first.
    """
    texts = [[plain(cell).translate(_SPACES) or EMPTY for cell in row] for row in rows]
    wanted = [max([cells_of(column.name), *(cells_of(row[at]) for row in texts)]) for at, column in enumerate(columns)]
    kept: list[int] = list(range(len(columns)))
    gone: list[str] = []
    if width is not None:
        wanted = [_limited(column, at) for column, at in zip(columns, wanted, strict=True)]
        kept, gone = _kept(columns, texts, wanted, width, go_first)
        wanted = _shrunk(columns, kept, wanted, width, go_first)
    else:
        columns = [column._replace(right=False) for column in columns]  # a pipe gets no space before a cell
    pad = kept[:-1] if width is None else kept
    head = [_padded(columns[at].name, columns[at], wanted[at], at in pad) for at in kept]
    shown = [[_padded(row[at], columns[at], wanted[at], at in pad) for at in kept] for row in texts]
    return Layout([columns[at].name for at in kept], head, shown, gone)


def _limited(column: Column, wanted: int) -> int:
    return max(cells_of(column.name), min(wanted, column.most)) if column.most else wanted


def _least(column: Column, wanted: int) -> int:
    return min(wanted, max(column.least, cells_of(column.name))) if column.least else wanted


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _kept(
    columns: Sequence[Column], rows: list[list[str]], wanted: list[int], width: int, go_first: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Return the places of the columns that stay, and the names of those that had something to show."""
    places = {column.name: at for at, column in enumerate(columns)}
    droppable = [places[name] for name in go_first if name in places]
    empty = [at for at in droppable if all(row[at] == EMPTY for row in rows)]
    kept, gone = list(range(len(columns))), []
    for at in empty:
        if _total([wanted[place] for place in kept]) <= width:
            break
        kept.remove(at)
    for at in (at for at in droppable if at not in empty):
        if _total([_least(columns[place], wanted[place]) for place in kept]) <= width:
            break
        others = [place for place in kept if place != at]
        alone = columns[at].least and not any(columns[place].least for place in others)
        if alone and _total([*(wanted[place] for place in others), SHORT]) <= width:
            break  # `_shrunk` cuts its cells to the room that there is
        kept.remove(at)
        gone.append(columns[at].name)
    common = [at for at in droppable if at in kept and columns[at].common and len({row[at] for row in rows}) == 1]
    for at in common if len(rows) > 1 else ():
        if _total([wanted[place] for place in kept]) <= width:
            break
        kept.remove(at)
        gone.append(columns[at].name)
    return kept, gone


def _shrunk(
    columns: Sequence[Column], kept: list[int], wanted: list[int], width: int, go_first: Sequence[str]
) -> list[int]:
    """Return the widths. Room that is left goes to the most important columns first."""
    widths = [_least(column, at) for column, at in zip(columns, wanted, strict=True)]
    room = width - _total([widths[at] for at in kept])
    rank = {name: at for at, name in enumerate(go_first)}
    for at in kept if room < 0 else ():
        if columns[at].least:
            widths[at] = max(cells_of(columns[at].name), widths[at] + room)
    for at in sorted(kept, key=lambda place: -rank.get(columns[place].name, len(rank))):
        more = min(max(room, 0), wanted[at] - widths[at])
        widths[at] += more
        room -= more
    return widths


def _padded(text: str, column: Column, width: int, pad: bool) -> str:
    text = fitted(text, width, keep_end=column.keep_end)
    space = " " * (width - cells_of(text))
    return space + text if column.right else text + (space if pad else "")


def fitted(text: str, width: int, *, keep_end: bool = False) -> str:
    """Return the text in at most `width` columns of the terminal. An ellipsis marks the cut."""
    if cells_of(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, used = "", 1
    for char in reversed(text) if keep_end else text:
        used += cells_of(char)
        if used > width:
            break
        kept = char + kept if keep_end else kept + char
    if keep_end and "/" in kept:
        kept = kept[kept.index("/") :]
    return f"…{kept}" if keep_end else f"{kept}…"


def cells_of(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )

"""Tables on a terminal, drawn by rich: cells wrap, so that a narrow terminal shows all of them. A pipe gets plain text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from clisup.cli.views.terminal import Ink, plain, table, width_of

__all__ = ["print_table"]

_LEAST_WIDTH = 20


def print_table(head: Sequence[str] | None, rows: Sequence[Sequence[str]], styles: Sequence[str] | None = None) -> None:
    """Print a table, with or without a head. `styles` holds a style of rich for each row.

    Text in cells is shown as it is: markup means nothing, and control characters are replaced.
    """
    width = width_of(sys.stdout)
    if width is None:
        print(table(list(head) if head else None, [list(row) for row in rows]))
        return
    # rich takes as long to import as the rest of a command, and a pipe needs none of it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    empty = "-" if head else ""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", show_header=head is not None)
    for number, title in enumerate(head or [""] * len(rows[0])):
        drawn.add_column(title, overflow="fold", no_wrap=number == 0)  # an id can be copied whole
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        drawn.add_row(*(Text(plain(cell).replace("\n", " ").replace("\t", " ") or empty) for cell in row), style=style)
    console = Console(
        file=sys.stdout,
        width=max(width, _LEAST_WIDTH),
        highlight=False,
        color_system="auto" if Ink().on else None,
    )
    console.print(drawn)

"""Text for people: colours, readable numbers, plain tables, and no control characters of others.

`clisup status` loads this module, so the module imports almost nothing.
"""

from __future__ import annotations

import os
import sys

from clisup.policy.secrets.plain_text import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from clisup.client.raw import JsonObject

__all__ = [
    "Ink",
    "brief",
    "clip",
    "cost",
    "count",
    "cut",
    "duration",
    "plain",
    "print_table",
    "session_name",
    "short_name",
    "size",
    "table",
    "tokens",
    "width_of",
]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "accent": "36"}
_SPACES = {9: " ", 10: " "}
_LEAST_WIDTH = 20


class Ink:
    """Colours of one stream: none in a pipe, with NO_COLOR, or on a dumb terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        out = stream or sys.stdout
        self.on = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, style: str, text: str) -> str:
        return f"\033[{_CODES[style]}m{text}\033[0m" if self.on else text


def width_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind a stream, by `$COLUMNS` or the terminal itself; None without one."""
    if not stream.isatty():
        return None
    if (named := os.environ.get("COLUMNS", "")).isdecimal() and int(named) > 0:
        return int(named)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def cut(text: str, width: int | None) -> str:
    """Cut each line at `width` columns (None: not at all). A cut line loses its colours."""
    if width is None:
        return text
    return "\n".join(
        line if len(bare := _bare(line)) <= width else bare[: width - 1] + "…" for line in text.split("\n")
    )


def _bare(line: str) -> str:
    first, *rest = line.split("\033[")
    return first + "".join(part.partition("m")[2] for part in rest)


def clip(text: str, width: int = 120) -> str:
    """Return one line of at most `width` characters."""
    line = " ".join(plain(text[: width * 8]).split())
    return line if len(line) <= width and len(text) <= width * 8 else line[: width - 1] + "…"


def session_name(title: object, session_id: str, width: int = 100) -> str:
    """Return the title of a session in one line, or the head of its id for a session without one."""
    return clip(str(title or f"Session {session_id[:8]}"), width)


def short_name(session_id: str) -> str:
    """Return the first characters of a session's id, behind its box in a view of all boxes."""
    box, slash, id_ = session_id.rpartition("/")
    return f"{box}{slash}{id_[:8]}"


def duration(seconds: float | None) -> str:
    """Return a duration as `8.2 s`, `3 min`, `2 h 5 min` or `4 d 1 h`."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"


def brief(seconds: float | None) -> str:
    """Return a duration for a narrow column, as `8s`, `3m`, `2h05m`, `4d1h` or `12d`."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 100:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{hours // 24}d{hours % 24}h" if hours < 240 else f"{hours // 24}d"


def size(number: float | None) -> str:
    """Return bytes as `52.1 MiB`."""
    if number is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def count(number: int | None) -> str:
    """Return a number as `12`, `4.5k` or `1.2M`."""
    if number is None:
        return "-"
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1e6:.1f}M"


def cost(dollars: float | None) -> str:
    """Return a sum of money as `$0.0123`."""
    return "-" if dollars is None else f"${dollars:.4f}"


def tokens(usage: JsonObject | None) -> str:
    """Return the sum of all tokens of a usage, or `-` if the CLI did not report any."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    known = [usage[name] for name in names if usage.get(name) is not None] if usage else []
    return count(sum(known)) if known else "-"


def table(head: list[str] | None, rows: list[list[str]]) -> str:
    """Return a plain table. Columns are as wide as their cells; a line end or tab in a cell becomes a space.

    An empty cell is `-`, except in a table without a head.
    """
    empty = "-" if head else ""
    cells = [*([head] if head else []), *[[plain(cell).translate(_SPACES) or empty for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[-1] = 0
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def print_table(head: Sequence[str] | None, rows: Sequence[Sequence[str]], styles: Sequence[str] | None = None) -> None:
    """Print a table, with or without a head. `styles` holds a style of rich for each row.

    On a terminal rich draws the table: cells wrap, so that a narrow terminal shows all of them. A pipe gets plain text. Text in
    cells is shown as it is: markup means nothing, and control characters are replaced.
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
        file=sys.stdout, width=max(width, _LEAST_WIDTH), highlight=False, color_system="auto" if Ink().on else None
    )
    console.print(drawn)

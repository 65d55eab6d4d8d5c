"""Markdown of an answer on a terminal, block by block, drawn by rich.

A block is complete at an empty line outside fenced code, if the next line is not indented, or at the end of the message.
Nothing of the text is lost: raw HTML stays as text, single line ends stay, and lines of code are never wrapped.
"""

from __future__ import annotations

import io
import os
import re
from typing import TextIO

from clisup.cli.views.terminal import Ink, plain, width_of

__all__ = ["LONGEST_BLOCK", "AnswerText", "MarkdownBlocks", "markdown_text"]

LONGEST_BLOCK = 100_000
"""Characters of an incomplete block. A longer one is drawn in parts."""

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_STYLES = re.compile(r"\033\[[0-9;]*m")
_COLUMNS = 80


class MarkdownBlocks:
    """Cutter of a streamed text into complete blocks."""

    def __init__(self) -> None:
        self._held = ""
        self._scanned = 0  # whole lines of the held text that were looked at
        self._end = 0  # the place behind an empty line, where the block ends unless an indented line follows
        self._fence = ""

    @property
    def tail(self) -> str:
        """Return the last line of the text that is held back."""
        return self._held.rstrip().rpartition("\n")[2]

    def feed(self, text: str) -> list[str]:
        """Add text. Return the blocks that are complete."""
        self._held += text
        blocks: list[str] = []
        while True:
            if self._end and self._scanned < len(self._held) and self._held[self._scanned] not in " \t\n":
                blocks.append(self._take(self._end))
            if (end := self._held.find("\n", self._scanned)) < 0:
                break
            self._look(self._held[self._scanned : end], end + 1)
            if self._scanned > LONGEST_BLOCK:
                blocks.append(self._take(self._scanned))
        if len(self._held) > LONGEST_BLOCK:
            blocks.append(self._take(len(self._held)))
        return [block for block in blocks if block.strip()]

    def finish(self) -> list[str]:
        """Return the rest: the message has ended."""
        self._fence = ""
        rest = self._take(len(self._held))
        return [rest] if rest.strip() else []

    def drop(self) -> bool:
        """Drop the held text. Return whether there was any."""
        held = bool(self._held.strip())
        self._take(len(self._held))
        self._fence = ""
        return held

    def _look(self, line: str, end: int) -> None:
        """Look at the line that ends before `end`."""
        self._scanned = end
        if line.strip():
            self._end = 0
        elif not self._fence:
            self._end = end
        found = _FENCE.match(line)
        if self._fence:
            if found and found[1].startswith(self._fence) and not line.strip(" `~"):
                self._fence = ""
        elif found:
            self._fence = found[1]

    def _take(self, end: int) -> str:
        block, self._held = self._held[:end], self._held[end:]
        self._scanned, self._end = max(0, self._scanned - end), 0
        return block


class AnswerText:
    """Text of an answer for a stream: Markdown on a terminal, block by block. A pipe gets the text unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._tty = stream, stream.isatty()
        self._blocks = MarkdownBlocks() if self._tty and os.environ.get("TERM") != "dumb" else None
        self._drawn = 0  # blocks of this message

    @property
    def in_blocks(self) -> bool:
        """Tell whether the stream gets whole blocks, so that each piece ends with a line end."""
        return self._blocks is not None

    def feed(self, text: str) -> str:
        """Add text. Return the text to print now."""
        if self._blocks is None:
            return plain(text) if self._tty else text
        return self._draw(self._blocks.feed(text))

    def finish(self) -> str:
        """End the message. Return the rest of its text."""
        if self._blocks is None:
            return ""
        rest = self._draw(self._blocks.finish())
        self._drawn = 0
        return rest

    def withdraw(self) -> bool:
        """Drop the text that is not drawn yet. Return whether other text of the message was shown."""
        if self._blocks is None:
            return True
        self._blocks.drop()
        return self._drawn > 0

    def _draw(self, blocks: list[str]) -> str:
        drawn = ""
        for block in blocks:
            drawn += ("\n" if self._drawn else "") + markdown_text(block, self._stream)
            self._drawn += 1
        return drawn


def markdown_text(text: str, stream: TextIO) -> str:
    """Return Markdown as drawn for the terminal behind `stream`, without blank lines around. Control characters are replaced."""
    from rich.console import Console  # a pipe needs none of rich

    from clisup.cli.views.markdown_elements import THEME, AnswerMarkdown

    drawn = io.StringIO()
    console = Console(
        file=drawn,
        width=width_of(stream) or _COLUMNS,
        force_terminal=True,
        color_system="standard" if Ink(stream).on else None,
        highlight=False,
        theme=THEME,
    )
    console.print(AnswerMarkdown(plain(text)), crop=False)
    lines = [line.rstrip(" ") for line in drawn.getvalue().split("\n")]
    while lines and not _STYLES.sub("", lines[0]).strip():
        lines.pop(0)
    while lines and not _STYLES.sub("", lines[-1]).strip():
        lines.pop()
    return "\n".join(lines) + "\n" if lines else ""

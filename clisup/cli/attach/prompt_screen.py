"""A terminal with an answer that runs on above and a line that is typed below, so that neither cuts into the other.

While the line is shown, whole lines go above it and the beginning of the next is held; as soon as it is hidden, text streams
as it comes.
"""

from __future__ import annotations

import os
import signal
import termios
from types import FrameType
from typing import Self

from clisup.cli.attach.prompt_line import PASTE_OFF, PASTE_ON, PromptLine
from clisup.cli.views.terminal import Ink, plain

__all__ = ["HELD", "PromptScreen"]

HELD = 8192
"""Characters of a line that has no end yet, which are held while somebody types; more is broken there."""

_ERASE = "\r\033[K"
_COLUMNS = 80
_IN, _OUT = 0, 1


class PromptScreen:
    """Owns the terminal of stdin inside its block: no echo, keys one by one. What it prints goes to stdout."""

    tty = True

    def __init__(self, line: PromptLine) -> None:
        self._line = line
        self._ink = Ink()
        self._prompt: str | None = None
        self._held = ""
        self._at_start = True

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(_IN)
        mode = termios.tcgetattr(_IN)
        mode[0] &= ~termios.IXON
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(_IN, termios.TCSADRAIN, mode)
        self._handlers = {n: signal.signal(n, _leave) for n in (signal.SIGTERM, signal.SIGHUP)}
        self._put(PASTE_ON)
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.hide()
            if not self._at_start:
                self._put("\n")
            self._put(PASTE_OFF)
            termios.tcsetattr(_IN, termios.TCSADRAIN, self._before)
        except (OSError, termios.error):
            pass  # the terminal is gone
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def write(self, text: str) -> None:
        """A piece of the answer."""
        self._held += plain(text)
        self._flush()

    def note(self, text: str) -> None:
        """A line beside it."""
        if self._held:  # only where the line is shown
            self._held += "\n"
            self._flush()
        start = "" if self._at_start or self._prompt is not None else "\n"
        self._above(f"{start}{self._ink('dim', plain(text))}\n")

    def show(self, prompt: str) -> None:
        """Show the typed line, or show it anew."""
        if self._prompt is None and not self._at_start:
            self._put("\n")
            self._at_start = True
        self._prompt = prompt
        self._draw()

    def hide(self) -> None:
        """Take the typed line away; what was held comes."""
        if self._prompt is not None:
            self._put(_ERASE)
            self._prompt = None
        self._flush()

    def keep(self) -> None:
        """Leave the typed line where it is, as said, and go on beneath it."""
        if self._prompt is not None:
            self._put("\n")
            self._prompt = None
        self._at_start = True

    def _flush(self) -> None:
        """Print what may be printed now: all of it, or its whole lines while the typed line is shown."""
        if self._prompt is None:
            text, self._held = self._held, ""
        elif len(self._held) > HELD:
            text, self._held = self._held + "\n", ""
        else:
            lines, end, self._held = self._held.rpartition("\n")
            text = lines + end
        self._above(text)

    def _above(self, text: str) -> None:
        if not text:
            return
        if self._prompt is not None:
            self._put(_ERASE)
        self._put(text)
        self._at_start = text.endswith("\n")
        if self._prompt is not None:
            self._draw()

    def _draw(self) -> None:
        assert self._prompt is not None
        self._put(_ERASE + self._line.row(self._prompt, self._columns()))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(_OUT).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _put(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(_OUT, data) :]


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)

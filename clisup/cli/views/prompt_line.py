"""Typed line of `clisup attach`, and the terminal that shows it below the streaming answer."""

from __future__ import annotations

import codecs
import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal, NamedTuple, Self

from clisup.cli.views.answer import diff_line
from clisup.cli.views.events import visible
from clisup.cli.views.markdown import AnswerText
from clisup.cli.views.progress import ERASE, TurnProgress, status_row
from clisup.cli.views.terminal import Ink, plain

__all__ = ["HELD", "LINE_LIMIT", "PASTE_OFF", "PASTE_ON", "KeyPress", "PromptLine", "PromptScreen"]

LINE_LIMIT = 256 * 1024
"""Characters of a typed line. A longer prompt can come from a file: `clisup run --session ... -`."""

PASTE_ON, PASTE_OFF = "\033[?2004h", "\033[?2004l"
_BEGIN, _END = "\033[200~", "\033[201~"
_SEQUENCE = re.compile(r"\033(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_LONGEST_SEQUENCE = 16
_UP = ("\033[A", "\033OA")
_NEWLINE = "⏎"

HELD = 8192
"""Limit of characters of an unfinished line that are held back while a person types."""

_COLUMNS = 80
_IN, _OUT = 0, 1


class KeyPress(NamedTuple):
    """Meaning of a key: a whole line, Ctrl-C (`interrupt`) or Ctrl-D (`leave`)."""

    kind: Literal["line", "interrupt", "leave"]
    text: str = ""


class PromptLine:
    """Line that a person types, fed with the terminal's bytes. `text` is typed and not yet sent.

    Pasted text keeps its line ends (bracketed paste), so that it becomes one prompt.
    """

    def __init__(self) -> None:
        self.text = ""
        self.secret = False
        """The text is drawn as stars, and not kept for the key Up."""
        self._before = ""
        self._pasting = False
        self._pending = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[KeyPress]:
        """Handle typed bytes. The bytes of a key may arrive in pieces."""
        rest = self._pending + self._decode.decode(data)
        keys: list[KeyPress] = []
        while rest:
            if rest[0] == "\033":
                found = _SEQUENCE.match(rest)
                if found is None and len(rest) < _LONGEST_SEQUENCE:
                    break  # the rest has not arrived yet
                sequence = found[0] if found else rest[0]
                self._sequence(sequence)
                rest = rest[len(sequence) :]
            else:
                if (key := self._char(rest[0])) is not None:
                    keys.append(key)
                rest = rest[1:]
        self._pending = rest
        return keys

    def take(self) -> str:
        """Return the typed text and clear the line."""
        text, self.text = self.text, ""
        return text

    def row(self, prompt: str, width: int) -> str:
        """Return the line on one row of `width` cells, or the end of a longer line."""
        from rich.cells import cell_len  # other commands load this file's command for their help

        typed = "*" * len(self.text) if self.secret else visible(self.text.replace("\n", _NEWLINE))
        room = max(1, width - 1 - cell_len(prompt))
        if cell_len(typed) <= room:
            return prompt + typed
        end = len(typed)
        start, used = end, 1
        while start > 0 and (used := used + cell_len(typed[start - 1])) <= room:
            start -= 1
        return f"{prompt}…{typed[start:]}"

    def _sequence(self, sequence: str) -> None:
        if sequence in (_BEGIN, _END):
            self._pasting = sequence == _BEGIN
        elif sequence in _UP and not self.text:
            self.text = self._before

    def _char(self, char: str) -> KeyPress | None:
        if char in "\r\n" and not self._pasting:
            self._before = (not self.secret and self.text) or self._before
            return KeyPress("line", self.take())
        if char == "\x03":
            return KeyPress("interrupt")
        if char == "\x04":
            return KeyPress("leave") if not self.text else None
        if char in "\x7f\b":
            self.text = self.text[:-1]
        elif char == "\x15":
            self.text = ""
        elif char == "\x17":
            self.text = re.sub(r"\S+\s*$", "", self.text)
        elif char in "\r\n":
            self.text += "\n"
        elif (char == "\t" or ord(char) >= 32) and len(self.text) < LINE_LIMIT:
            self.text += char
        return None


class PromptScreen:
    """Terminal of stdin inside its block, without echo and with single keys. Output goes to stdout.

    The answer is drawn as by `clisup run`, above the last row: the typed line or the status of the turn. On a terminal
    without Markdown an unfinished line is held back while the last row is shown.
    """

    tty = True

    def __init__(self, line: PromptLine) -> None:
        self._line = line
        self._ink = Ink()
        self._text = AnswerText(sys.stdout)
        self._last_row: Callable[[], str] | None = None
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
        """Write a piece of the answer."""
        self._held += self._text.feed(text)
        self._flush()

    def note(self, text: str) -> None:
        """Print a line beside the answer."""
        self.end_message()
        if self._held:  # only while the last row is shown
            self._held += "\n"
            self._flush()
        start = "" if self._at_start or self._last_row is not None else "\n"
        self._above(f"{start}{self._ink('dim', plain(text))}\n")

    def diff(self, lines: list[str]) -> None:
        """Print the lines of a diff beside the answer."""
        self._above("".join(diff_line(self._ink, line) + "\n" for line in lines))

    def end_message(self) -> None:
        """Draw the rest of a message."""
        self._held += self._text.finish()
        self._flush()

    def withdraw(self) -> bool:
        """Drop the text that is not drawn yet. Return whether other text of the message was shown."""
        return self._text.withdraw()

    def show(self, prompt: str) -> None:
        """Show the typed line, or draw it again."""
        self._show(lambda: self._line.row(prompt, self._columns()))

    def show_status(self, progress: TurnProgress) -> bool:
        """Show the status of the turn, or draw it again. Return False on a terminal that gets single characters of the answer."""
        if not self._text.in_blocks:
            self.hide()
            return False
        self._show(lambda: status_row(progress, time.monotonic(), self._columns(), self._ink))
        return True

    def _show(self, last_row: Callable[[], str]) -> None:
        if self._last_row is None and not self._at_start:
            self._put("\n")
            self._at_start = True
        self._last_row = last_row
        self._draw()

    def hide(self) -> None:
        """Hide the last row and print the held text."""
        if self._last_row is not None:
            self._put(ERASE)
            self._last_row = None
        self._flush()

    def keep(self) -> None:
        """Leave the typed line on the screen as sent, and continue below it."""
        if self._last_row is not None:
            self._put("\n")
            self._last_row = None
        self._at_start = True

    def _flush(self) -> None:
        """Print the held text; while the last row is shown, only whole lines."""
        if self._last_row is None:
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
        if self._last_row is not None:
            self._put(ERASE)
        self._put(text)
        self._at_start = text.endswith("\n")
        if self._last_row is not None:
            self._draw()

    def _draw(self) -> None:
        assert self._last_row is not None
        self._put(ERASE + self._last_row())

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

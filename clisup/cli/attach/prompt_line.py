"""A line that a person types while other text comes: what each key does to it, and how it looks on one row. Pure.

Pasted text keeps its line ends (bracketed paste), so that it becomes one prompt and not many.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal, NamedTuple

from rich.cells import cell_len

from clisup.cli.views.approval_words import visible

__all__ = ["LINE_LIMIT", "PASTE_OFF", "PASTE_ON", "Key", "PromptLine"]

LINE_LIMIT = 256 * 1024
"""Characters that are taken; a longer prompt comes from a file: `clisup run --session ... -`."""

PASTE_ON, PASTE_OFF = "\033[?2004h", "\033[?2004l"
_BEGIN, _END = "\033[200~", "\033[201~"
_SEQUENCE = re.compile(r"\033(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")
_LONGEST_SEQUENCE = 16
_UP = ("\033[A", "\033OA")
_NEWLINE = "⏎"


class Key(NamedTuple):
    """What was meant: a whole line, Ctrl-C (`interrupt`) or Ctrl-D (`leave`)."""

    kind: Literal["line", "interrupt", "leave"]
    text: str = ""


class PromptLine:
    """Fed with the terminal's bytes. `text` is what is typed and not yet sent."""

    def __init__(self) -> None:
        self.text = ""
        self._before = ""
        self._pasting = False
        self._pending = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> list[Key]:
        """Take what was typed. A key's bytes may come in pieces."""
        rest = self._pending + self._decode.decode(data)
        keys: list[Key] = []
        while rest:
            if rest[0] == "\033":
                found = _SEQUENCE.match(rest)
                if found is None and len(rest) < _LONGEST_SEQUENCE:
                    break  # the rest of it is still to come
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
        """What is typed, which is then gone from the line."""
        text, self.text = self.text, ""
        return text

    def row(self, prompt: str, width: int) -> str:
        """The line on one row of `width` cells: where it is too long, its end."""
        typed = visible(self.text.replace("\n", _NEWLINE))
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

    def _char(self, char: str) -> Key | None:
        if char in "\r\n" and not self._pasting:
            self._before = self.text or self._before
            return Key("line", self.take())
        if char == "\x03":
            return Key("interrupt")
        if char == "\x04":
            return Key("leave") if not self.text else None
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

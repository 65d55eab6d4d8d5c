"""Middles that were cut out of the strings of one line, by the marks that stand in their places."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

__all__ = ["CLOSE", "NO_CUTS", "OPEN", "Cuts", "LongText", "Middle", "is_marked", "marks_in"]

OPEN, CLOSE = "\ufdd0", "\ufdd1"  # no characters: they are there for the use inside of programs
_MARK = re.compile(
    f"{OPEN}[0-9]+-[0-9]+{CLOSE}"
)  # the line's place, so that no text of another line holds it, and a number
_decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode


class Middle(NamedTuple):
    """The middle of a string, as JSON writes it: slices that can be read one by one. `chars` is how many characters it has."""

    slices: Sequence[bytes]
    chars: int


class LongText:
    """A text that is not in memory in one piece: iterate over its bytes in UTF-8, as often as need be."""

    __slots__ = ("_parts", "_quoted")

    def __init__(self, parts: Sequence[str | Middle], *, quoted: bool) -> None:
        """`quoted`: the text is JSON, and the cuts are inside of strings in it."""
        self._parts = parts
        self._quoted = quoted

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, str):
                yield part.encode("utf-8", "replace")
            else:
                yield from map(self._utf8, part.slices)

    def __bytes__(self) -> bytes:
        return b"".join(self)

    def _utf8(self, data: bytes) -> bytes:
        if b"\\" not in data:
            return data  # as JSON writes it is as it is
        text = _decode_text(b'"' + data + b'"')
        return (json.dumps(text, ensure_ascii=False)[1:-1] if self._quoted else text).encode()


class Cuts:
    """What was cut out of one line, by its marks. The texts that a decoder made of the line hold these."""

    __slots__ = ("_cuts",)

    def __init__(self, cuts: Mapping[str, Middle]) -> None:
        self._cuts = cuts

    def length(self, text: str) -> int:
        """Characters of the text with what was cut out of it."""
        return len(text) + sum(self._cuts[mark].chars - len(mark) for _, mark in self._marks(text))

    def whole(self, text: str, *, quoted: bool = False) -> LongText | None:
        """The text with what was cut out of it, as it is or inside of JSON; None where nothing was."""
        parts: list[str | Middle] = []
        at = 0
        for begin, mark in self._marks(text):
            parts += [text[at:begin], self._cuts[mark]]
            at = begin + len(mark)
        return LongText([*parts, text[at:]], quoted=quoted) if parts else None

    def _marks(self, text: str) -> Sequence[tuple[int, str]]:
        return [found for found in marks_in(text) if found[1] in self._cuts] if self._cuts else ()


NO_CUTS = Cuts({})


def is_marked(text: str) -> bool:
    return OPEN in text or CLOSE in text


def marks_in(text: str) -> Iterator[tuple[int, str]]:
    """Each mark and its place. By `find`: a regular expression would take longer for the text than its decoder."""
    at = text.find(OPEN)
    while at >= 0:
        if mark := _MARK.match(text, at):
            yield at, mark[0]
        at = text.find(OPEN, at + 1)

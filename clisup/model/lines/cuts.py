"""Middles of long strings, cut out of one line. A mark stands in the place of each middle."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

OPEN, CLOSE = "\ufdd0", "\ufdd1"  # noncharacters, reserved for use inside of programs
# A mark holds the line's offset and a number, so no text of another line holds the same mark.
_MARK = re.compile(f"{OPEN}[0-9]+-[0-9]+{CLOSE}")
_decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode


class Middle(NamedTuple):
    """Middle of a string in JSON, in slices that can be decoded one by one. `chars` is its number of characters."""

    slices: Sequence[bytes]
    chars: int


class LongText:
    """Text that is not in memory in one piece. Iterate over its bytes in UTF-8, as often as needed."""

    __slots__ = ("_parts", "_quoted")

    def __init__(self, parts: Sequence[str | Middle], *, quoted: bool) -> None:
        """Join parts. With `quoted`, the text is JSON and the cuts are inside of its strings."""
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
            return data  # JSON without escapes is the text itself
        text = _decode_text(b'"' + data + b'"')
        return (json.dumps(text, ensure_ascii=False)[1:-1] if self._quoted else text).encode()


class Cuts:
    """Middles of one line, by their marks. The texts that a decoder makes of the line hold the marks."""

    __slots__ = ("_cuts",)

    def __init__(self, cuts: Mapping[str, Middle]) -> None:
        self._cuts = cuts

    def length(self, text: str) -> int:
        """Return the number of characters of the text with its middles."""
        return len(text) + sum(self._cuts[mark].chars - len(mark) for _, mark in self._marks(text))

    def whole(self, text: str, *, quoted: bool = False) -> LongText | None:
        """Return the text with its middles, plain or inside of JSON. Return None if nothing was cut."""
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
    """Tell whether the text holds a character of a mark."""
    return OPEN in text or CLOSE in text


def marks_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield each mark and its place. `find` is used because a regular expression takes longer than the decoder."""
    at = text.find(OPEN)
    while at >= 0:
        if mark := _MARK.match(text, at):
            yield at, mark[0]
        at = text.find(OPEN, at + 1)

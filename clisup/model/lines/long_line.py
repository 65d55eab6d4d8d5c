"""Lines of megabytes, made short before they are decoded. Pure; each step is a bounded piece of work.

A decoder needs the head of a frame and its small fields; of a tool result of 5 MB it passes the text on, unread. So the
middle of such a string is cut out, and a mark stands in its place: what is left is a line of some ten kilobytes, which is
decoded as any other. The marks come out again where the events' payloads are moved to blobs (`clisup.policy.spill`): a string
that was cut is longer than the inline limit, so every payload that it is part of is moved. Whole slices are cut, and each of
them is proved to be the inside of a JSON string, so the short line is read as the long one would be. Where that cannot
be proved, or the decoder might read what was cut, the line is decoded in one piece, as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from clisup.model.lines.cuts import CLOSE, OPEN, Cuts, Middle, is_marked, marks_in
from clisup.model.lines.framing import Line
from clisup.model.lines.json_values import has_more_values

__all__ = ["LONG_LINE", "PassesOn", "Path", "shorten"]

LONG_LINE = 256 * 1024
"""Bytes. Shorter lines are decoded in one piece: that takes about a millisecond."""
SLICE = 32 * 1024
"""Bytes that one step looks at."""
HEAD = 48 * 1024
"""Bytes of a string that stay before its mark: 4,096 characters and more, which may take twelve bytes each."""
SHORT_LINE = 1024 * 1024
"""Bytes. A line that is longer with its long strings cut is decoded in one piece."""
_NODES = 2000  # values that one step looks at
_decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
_decode_any: Callable[[bytes], object] = msgspec.json.Decoder().decode

Path = tuple[str, ...]
"""Where in a frame a string stands: keys, and `*` for a place in a list."""
PassesOn = Callable[[dict[str, Any], Path], bool]
"""Does a decoder only pass on the string at this place of this frame, whatever follows the first 4,096 characters of it?

To pass on is to leave it out, to put it into a payload of an event of this line, joined with others or not, or to cut it.
"""


def shorten(line: Line, passes_on: PassesOn, *, over: int, most_values: int) -> Generator[None, None, Line]:
    """Read a line that came in pieces, step by step: the line with its long strings cut, or in one piece where that cannot be.

    Only strings are cut of which more than `over` characters can go, so that they are in no event. A line of more than
    `most_values` values is not looked into: it comes in one piece.
    """
    short = yield from _Shortening(line.start, over).read(line.pieces)
    if short is not None:
        yield
        data, cuts = short
        if not has_more_values(data, most_values) and (yield from _is_sound(data, cuts, passes_on)):
            yield
            return replace(line, data=data, pieces=(), cuts=Cuts(cuts))
    return line.joined()


class _Shortening:
    """One line's. The state of the reader is all that there is to JSON as long as it is valid: in a string, or not."""

    def __init__(self, start: int, over: int) -> None:
        self._start = start
        self._over = over
        self._kept: list[bytes] = []
        self._size = 0
        self._inside = False
        self._run = 0  # bytes of the open string so far
        self._cut: list[bytes] = []
        self._chars = 0
        self._cuts: dict[str, Middle] = {}

    def read(self, pieces: Sequence[bytes]) -> Generator[None, None, tuple[bytes, dict[str, Middle]] | None]:
        """The short line and what was cut; None where there is nothing to cut, or too much is left."""
        rest, seen = b"", 0
        for piece in _slices(pieces):
            rest = self._take(rest + piece)
            if self._size > SHORT_LINE:
                return None
            seen += len(piece)
            if seen >= SLICE:
                seen = 0
                yield
        self._end_cut()
        self._keep(rest)
        return (b"".join(self._kept), self._cuts) if self._cuts and self._size <= SHORT_LINE else None

    def _take(self, data: bytes) -> bytes:
        """The next slice; gives back the bytes at its end that mean nothing without those after it."""
        at = _whole_until(data)
        body, rest = data[:at], data[at:]
        text = _inside_of_string(body) if self._inside and self._run >= HEAD else None
        if text is not None:
            self._cut.append(body)
            self._chars += len(text)
        else:
            self._end_cut()
            self._keep(body)
            self._follow(body)
        return rest

    def _keep(self, data: bytes) -> None:
        self._kept.append(data)
        self._size += len(data)

    def _follow(self, data: bytes) -> None:
        """Where does this leave the reader?"""
        plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data
        quotes = plain.count(b'"')
        if quotes:
            self._inside ^= quotes % 2 == 1
            self._run = len(plain) - plain.rfind(b'"') - 1
        else:
            self._run += len(plain)

    def _end_cut(self) -> None:
        if self._chars > self._over:
            mark = f"{OPEN}{self._start}-{len(self._cuts)}{CLOSE}"
            self._keep(mark.encode())
            self._cuts[mark] = Middle(self._cut, self._chars)
        else:
            for piece in self._cut:
                self._keep(piece)
        self._cut, self._chars = [], 0


def _slices(pieces: Sequence[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), SLICE):
            yield piece[at : at + SLICE]


def _inside_of_string(data: bytes) -> str | None:
    try:
        return _decode_text(b'"' + data + b'"')
    except ValueError:
        return None


_ESCAPE_BEGUN = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_HIGH_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


def _whole_until(data: bytes) -> int:
    """Up to where can it be read alone: not through a character, an escape or a pair of surrogates?"""
    at = len(data)
    for back in range(1, min(4, at + 1)):
        if data[at - back] >= 0xC0:
            at -= back if back < _width(data[at - back]) else 0
            break
    for begun in (_ESCAPE_BEGUN, _HIGH_HALF):
        first = max(0, at - 6)
        if (match := begun.search(data[first:at])) and _is_escape(data, first + match.start()):
            at = first + match.start()
    return at


def _width(lead: int) -> int:
    """Bytes of the character that begins so."""
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _is_escape(data: bytes, at: int) -> bool:
    """Is the backslash there none that another one before it has taken?"""
    before = data[: at + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _is_sound(data: bytes, cuts: Collection[str], passes_on: PassesOn) -> Generator[None, None, bool]:
    """Is the short line a frame with each mark once, in a string that its decoder only passes on?"""
    try:
        frame = _decode_any(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(frame, dict):
        return False
    marks: list[str] = []
    todo: list[tuple[Path, Any]] = [((), frame)]
    seen = 0
    while todo:
        path, value = todo.pop()
        if isinstance(value, str) and is_marked(value):
            found = [mark for _, mark in marks_in(value)]
            if len(found) * 2 != value.count(OPEN) + value.count(CLOSE) or not passes_on(frame, path):
                return False
            marks += found
        elif isinstance(value, dict):
            if any(map(is_marked, value)):
                return False
            todo += [((*path, key), child) for key, child in value.items()]
        elif isinstance(value, list):
            todo += [((*path, "*"), child) for child in value]
        seen += 1
        if seen % _NODES == 0:
            yield
    return sorted(marks) == sorted(cuts)

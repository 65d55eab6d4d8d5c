"""Shortening of lines of megabytes before they are decoded. Pure; each step is a bounded piece of work.

A decoder needs the head of a frame and its small fields. The text of a tool result of 5 MB is passed on, unread. The
middle of such a string is therefore cut out, and a mark takes its place. The rest is a line of some ten kilobytes, which
is decoded as usual. When payloads of events are moved to blobs (`clisup.policy.spill`), the middles replace the marks
again. A cut string is longer than the inline limit, so every payload with a mark is moved.

Whole slices are cut, and each slice is proved to be the inside of a JSON string. The short line therefore decodes like
the long one. If a slice cannot be proved, or the decoder might read a middle, the line is decoded in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from clisup.model.lines.framing import CLOSE, OPEN, Cuts, Line, Middle, is_marked, marks_in
from clisup.model.lines.json_values import has_more_values
from clisup.model.structs import JsonObject

LONG_LINE = 256 * 1024
"""Bytes. Shorter lines are decoded in one piece, which takes about a millisecond."""
SLICE = 32 * 1024
"""Bytes that one step reads."""
HEAD = 48 * 1024
"""Bytes of a string that stay before its mark: 4,096 characters and more, which may take twelve bytes each."""
SHORT_LINE = 1024 * 1024
"""Bytes. A line that is longer with its long strings cut is decoded in one piece."""
_NODES = 2000  # values that one step checks
_decode_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode
_decode_any: Callable[[bytes], object] = msgspec.json.Decoder().decode

Path = tuple[str, ...]
"""Place of a string in a frame: keys, and `*` for a place in a list."""
PassesOn = Callable[[JsonObject, Path], bool]
"""Predicate of a decoder: it only passes on the string at this place, whatever follows its first 4,096 characters.

To pass on a string is to omit it, to put it into a payload of an event of this line, alone or joined, or to cut it.
"""


def shorten(line: Line, passes_on: PassesOn, *, over: int, most_values: int) -> Generator[None, None, Line]:
    """Read a line in pieces, step by step. Return the line with its long strings cut, or else in one piece.

    A string is cut only if more than `over` characters can go. A line of more than `most_values` values is not decoded
    here and comes in one piece.
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
    """Shortening of one line. The only state is whether the reader is inside a string, which is enough for valid JSON."""

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
        """Return the short line and its middles, or None if there is nothing to cut or too much is left."""
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
        """Take the next slice. Return the bytes at its end that need the following bytes."""
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
    """Return the last place that splits no character, escape or pair of surrogates."""
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
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _is_escape(data: bytes, at: int) -> bool:
    """Tell whether the backslash at this place is not itself escaped."""
    before = data[: at + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _is_sound(data: bytes, cuts: Collection[str], passes_on: PassesOn) -> Generator[None, None, bool]:
    """Check that the short line is a frame with each mark once, in a string that its decoder only passes on."""
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

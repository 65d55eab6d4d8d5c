"""Framing of bytes as lines: any split of the input gives the same lines with the same offsets.

A line over the limit does not end the stream. The framer drops its payload, keeps its place in the spool (`start`,
`end`), and reads the next line as usual. Fragments of a line are joined once, at its newline: `rest + chunk` would be
quadratic (64 MB in 64 KiB chunks: 15.8 s instead of 0.08 s, measured). Tiny fragments are packed into blocks before that,
so each byte is copied at most twice. Lines over `pieces_over` are not joined.

The middles of long strings can be cut out of a line (`clisup.model.lines.long_line`). A mark then stands in their places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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


DEFAULT_LINE_LIMIT = 64 * 1024 * 1024
_HEAD = 512  # bytes of an oversize line that stay in memory, for its excerpt
_MAX_FRAGMENTS = 1024  # otherwise a writer of single bytes would cost a Python object for each byte
_TINY = 4096  # bytes of a fragment, on average, that is worth packing
_join = b"".join


class Line(Struct, frozen=True, gc=False):
    """Line without its newline. `start` and `end` are its offsets in the stream, `end` after the newline.

    `oversize` lines hold only their head in `data`. `complete` is false for a last line without a newline. A line with
    `pieces` has no `data` before `joined`. A line with `cuts` was shortened (`clisup.model.lines.long_line`).
    """

    start: int
    end: int
    data: bytes
    oversize: bool = False
    complete: bool = True
    pieces: tuple[bytes, ...] = ()
    cuts: Cuts | None = None

    @property
    def is_blank(self) -> bool:
        """Tell whether the line is empty or only white space."""
        return not self.oversize and (not self.data or self.data.isspace())

    @property
    def size(self) -> int:
        """Return the bytes of the received line without its newline, or of the head of an oversize line."""
        return len(self.data) if self.cuts is None else self.end - self.start - self.complete

    def first(self, size: int) -> bytes:
        """Return the first bytes of the line."""
        head = b""
        for piece in self.pieces:
            if len(head) >= size:
                break
            head += piece[: size - len(head)]
        return head if self.pieces else self.data[:size]

    def without_text(self) -> Line:
        """Return the line as an oversize line: only its head is left."""
        return replace(self, data=self.first(_HEAD), oversize=True, pieces=(), cuts=None)

    def joined(self) -> Line:
        """Return the line in one piece."""
        return replace(self, data=_join(self.pieces), pieces=()) if self.pieces else self


class LineFramer:
    """Framer of a byte stream. Only `\\n` ends a line: U+2028 and `\\r` stay inside."""

    __slots__ = (
        "_blocks",
        "_fragments",
        "_head",
        "_limit",
        "_packed_to",
        "_pieces_over",
        "_start",
        "offset",
        "pending",
    )

    def __init__(self, *, offset: int = 0, limit: int = DEFAULT_LINE_LIMIT, pieces_over: int | None = None) -> None:
        """Begin at `offset`. Lines of more than `pieces_over` bytes that came in pieces stay in pieces."""
        self._limit = limit
        self._pieces_over = limit if pieces_over is None else pieces_over
        self.offset = self._start = offset  # bytes of the stream that were read; start of the current line
        self._blocks: list[bytes] = []
        self._fragments: list[bytes] = []
        self.pending = 0  # bytes read of a line whose newline has not come yet
        self._packed_to = 0  # bytes of the line that are in blocks
        self._head: bytes | None = None  # set while the current line is over the limit

    def feed(self, chunk: bytes) -> list[Line]:
        """Take the next bytes. Return the lines that they complete, in order."""
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        # A piece longer than the limit, or the end of a line that has begun, needs `_finish`. All others are lines.
        slow = len(pieces) if len(chunk) > self._limit else min(len(pieces), 1) if self.pending else 0
        lines = [self._finish(piece, newline=1) for piece in pieces[:slow]] if slow else []
        start = self._start
        for piece in pieces[slow:] if slow else pieces:
            end = start + len(piece) + 1
            lines.append(Line(start, end, piece))
            start = end
        if len(pieces) > slow:
            self.offset = self._start = start
        if last:
            self._keep(last)
        return lines

    def close(self) -> Line | None:
        """End the stream, and return a last line without a newline."""
        return self._finish(b"", newline=0) if self.pending else None

    def _keep(self, piece: bytes) -> None:
        self.offset += len(piece)
        self.pending += len(piece)
        if self._head is not None:
            return
        self._fragments.append(piece)
        if self.pending > self._limit:
            self._head = self._first_bytes()
            self._forget()
        elif len(self._fragments) >= _MAX_FRAGMENTS:
            self._pack()

    def _finish(self, piece: bytes, *, newline: int) -> Line:
        if self.pending == 0 and len(piece) <= self._limit:  # the common case: a whole line inside one chunk
            start = self._start
            self.offset = self._start = start + len(piece) + newline
            return Line(start, self.offset, piece, complete=newline == 1)
        self._keep(piece)
        self.offset += newline
        pieces: tuple[bytes, ...] = ()
        if self._head is not None:
            data = self._head
        elif self.pending > self._pieces_over:
            data, pieces = b"", (*self._blocks, *self._fragments)
        else:
            data = _join([*self._blocks, *self._fragments])
        line = Line(self._start, self.offset, data, self._head is not None, newline == 1, pieces)
        self._forget()
        self.pending, self._head, self._start = 0, None, self.offset
        return line

    def _pack(self) -> None:
        tiny = self.pending - self._packed_to < _TINY * len(self._fragments)
        self._blocks += [_join(self._fragments)] if tiny else self._fragments
        self._fragments.clear()
        self._packed_to = self.pending

    def _forget(self) -> None:
        self._blocks.clear()
        self._fragments.clear()
        self._packed_to = 0

    def _first_bytes(self) -> bytes:
        """Return the head of the fragments. Its length is the same for every split of the same bytes."""
        wanted = min(_HEAD, self._limit)
        head = bytearray()
        for fragment in (*self._blocks, *self._fragments):
            head += fragment[: wanted - len(head)]
            if len(head) >= wanted:
                break
        return bytes(head)

"""A line both ways: in one piece, and made short before it is decoded. What becomes of it has to be the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clisup.backends import frames
from clisup.backends.base import Decoded, Decoder
from clisup.model.lines import long_line
from clisup.model.lines.framing import Line
from clisup.model.lines.long_line import SLICE, shorten
from clisup.policy import spill as spilling
from clisup.policy.spill import spill


def in_pieces(data: bytes, *, start: int = 7, size: int = SLICE, complete: bool = True) -> Line:
    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
    return Line(start, start + len(data) + complete, b"", complete=complete, pieces=pieces)


def short(line: Line, decoder: Decoder, *, over: int) -> Line:
    steps = shorten(line, decoder.passes_on, over=over, most_values=100_000)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Line = done.value
            return made


def told(decoded: Decoded, line: Line, limit: int) -> list[Any]:
    """All that becomes of a line: events as they are journaled, blobs, and the rest."""
    spilled = [spill(event, run=1, spool="out", line=line, k=k, limit=limit) for k, event in enumerate(decoded.events)]
    events = [
        (msgspec.json.encode(event), [(blob.name, bytes(blob.data)) for blob in blobs]) for event, blobs in spilled
    ]
    return [events, decoded.terminal, decoded.replies, decoded.answers]


def make_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes are a hundredth of what they are, so that many lines can be tried."""
    monkeypatch.setattr(long_line, "SLICE", 251)
    monkeypatch.setattr(long_line, "HEAD", 12 * 40)
    monkeypatch.setattr(spilling, "_HEAD", 40)
    monkeypatch.setattr(frames, "DETAIL_CHARS", 40)

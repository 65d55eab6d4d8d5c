"""Deltas in rows: three of four lines of an answer are one, so these are structs, and decoded, stored and told by the row.

The same events as `ContentDelta`, in a form that costs a tenth. A test holds the two together, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from clisup.model.journal import Source

__all__ = ["Delta", "DeltaKind", "DeltaRow"]

DeltaKind = Literal["text", "thinking", "tool_input"]


class Delta(Struct, frozen=True, gc=False, omit_defaults=True):
    """A `ContentDelta` that has no blob: the same fields in the same order. Made by decoders, from checked fields alone."""

    kind: DeltaKind
    text: str
    index: int | None = None
    message_id: str | None = None
    parent_tool_use_id: str | None = None


class DeltaRow(Struct, frozen=True, gc=False):
    """Deltas to be journaled, each the only event of its line of stdout; `starts` and `ends` are the places of the lines."""

    deltas: Sequence[Delta]
    turn_id: str
    run: int
    starts: Sequence[int]
    ends: Sequence[int]

    @property
    def last(self) -> Source:
        """The place of the last one."""
        return Source(self.run, "out", self.starts[-1], self.ends[-1], 0)

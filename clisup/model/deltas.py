"""Deltas in rows.

Three of four lines of an answer are deltas, so they are structs, decoded, stored and sent by the row. Deltas are the
same events as `ContentDelta`, in a form that costs a tenth. A test compares both, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from clisup.model.journal import Source

__all__ = ["Delta", "DeltaKind", "DeltaRow"]

DeltaKind = Literal["text", "thinking", "tool_input"]


class Delta(Struct, frozen=True, gc=False, omit_defaults=True):
    """Delta: a `ContentDelta` without a blob, with the same fields in the same order.

    Decoders make it only from checked fields.
    """

    kind: DeltaKind
    text: str
    index: int | None = None
    message_id: str | None = None
    parent_tool_use_id: str | None = None


class DeltaRow(Struct, frozen=True, gc=False):
    """Deltas for the journal, each the only event of its line of stdout.

    `starts` and `ends` are the places of the lines.
    """

    deltas: Sequence[Delta]
    turn_id: str
    run: int
    starts: Sequence[int]
    ends: Sequence[int]

    @property
    def last(self) -> Source:
        """Return the place of the last delta."""
        return Source(self.run, "out", self.starts[-1], self.ends[-1], 0)

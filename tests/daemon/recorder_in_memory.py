"""A `Recorder` whose journal is in memory, for tests of what is around it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from clisup.daemon.journal.recorder import Recorder
from clisup.model.journal import JournalBlock, encode_block, scan
from clisup.store.session_dir import SessionDir

SESSION = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"


class MemoryJournal:
    """What a `Recorder` needs of a store."""

    def __init__(self) -> None:
        self.next_seq = self.first_seq = 1
        self.lines: list[bytes] = []
        """A block for each event, however many events an append had."""

    def wants_snapshot(self, _more: int) -> bool:
        return False

    def append(self, data: bytes, count: int, _snapshot: dict[str, Any] | None) -> None:
        for _, block in scan(data):
            assert isinstance(block, JournalBlock)
            for seq in range(block.frames.first, block.frames.end):
                one = block.between(seq, seq + 1)
                memos = {seq: block.memos[seq]} if seq in block.memos else {}
                self.lines.append(encode_block(one._replace(memos=memos)))
        self.next_seq += count


class GoodDisk:
    """A storage that never refuses."""

    def watched(self) -> AbstractContextManager[None]:
        return nullcontext()

    def refused(self, error: object) -> None:
        pass


def recorder_in_memory(journal: MemoryJournal, disk: Any = None, *, max_keys: int = 1) -> Recorder:
    """The recorder of `SESSION`. Nothing is written: its directory is a name."""
    return Recorder(
        SessionDir("/nowhere", SESSION), cast("Any", journal), cast("Any", disk or GoodDisk()), max_keys=max_keys
    )

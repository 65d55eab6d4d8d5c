"""Reader of a run's output: one task reads at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import trio
import trio.testing
from recorder_in_memory import GoodDisk

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.reader import SpoolLines, SpoolReader
from clisup.daemon.runs.stderr import StderrEvents
from clisup.policy.secrets.redact import Redactor
from clisup.store.session_dir import RunDir
from clisup.store.spool import READ_CHUNK


class _Owner:
    """Takes chunks as a run on a full disk does: in the middle of one it waits."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.took = trio.Event()
        self._busy = False

    async def take_bytes(self, data: bytes, until: float) -> None:
        assert not self._busy, "what was read later would be taken before what was read first"
        self._busy = True
        await trio.sleep(0.01)
        self._busy = False
        self.taken.append(len(data))
        self.took.set()


def test_nothing_is_read_while_what_was_read_before_waits_for_the_disk(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    spool, chunks = tmp_path / "out", 12
    spool.write_bytes((b"x" * 1023 + b"\n") * (READ_CHUNK // 1024 * chunks))
    (tmp_path / "err").touch()
    disk, owner = cast("Any", GoodDisk()), _Owner()
    batch = Batch(cast("Any", None), cast("Any", None), disk, lambda _: None)
    out, err = SpoolLines(str(spool), 0, 1 << 20), SpoolLines(str(tmp_path / "err"), 0, 1000)
    stderr = StderrEvents(batch, cast("Any", None), Redactor([]), RunDir("/runs/1"), 10)
    reader = SpoolReader(
        out,
        err,
        stderr,
        batch,
        disk,
        trio.Lock(),
        take_bytes=owner.take_bytes,
        stored=lambda: None,
        caught_up=lambda: None,
        behind=0,
    )

    async def told_after_each() -> None:
        while True:
            await owner.took.wait()
            owner.took = trio.Event()
            await reader.take(spool.stat().st_size, 0)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(told_after_each)
            with trio.fail_after(60):
                await reader.pump(lambda: len(owner.taken) >= chunks)
            nursery.cancel_scope.cancel()

    trio.run(both, clock=autojump_clock)
    out.close()
    err.close()
    assert owner.taken == [READ_CHUNK] * chunks

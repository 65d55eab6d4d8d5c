"""Output that no spool takes: for how long the keeper waits."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clisup.keeper import streams
from clisup.keeper.streams import Outputs, OutputStream


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    """stdout with bytes that wait for a spool, and an empty stderr."""
    control = SimpleNamespace(push=lambda _: None, report_growth=lambda _: None)
    fds = [os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("out", "err")]
    made = Outputs(OutputStream("out", fds[0], 0), OutputStream("err", fds[1], 0), cast("Any", control))
    made.out.pending = b"text"
    return made


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(streams, "os", SimpleNamespace(**vars(os) | {"write": refused}))


def retry(outputs: Outputs) -> tuple[bytes, int]:
    outputs.out.flush()
    outputs.report()
    outputs.check(time.monotonic() + 1)
    return outputs.out.pending, outputs.out.fault


@pytest.mark.fault(90)
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_broken_disk_is_waited_for_and_then_no_longer(
    outputs: Outputs, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number)
    assert retry(outputs) == (b"text", 0)
    monkeypatch.setattr(streams, "HOPELESS_S", -1.0)
    assert retry(outputs) == (b"", number)
    assert outputs.out.dropped == 4 and not outputs.blocked


def test_a_full_disk_is_waited_for_however_long(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.ENOSPC)
    monkeypatch.setattr(streams, "HOPELESS_S", -1.0)
    assert retry(outputs) == (b"text", 0)


@pytest.mark.fault(90)
def test_a_file_at_its_largest_size_takes_no_more(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EFBIG)
    assert retry(outputs) == (b"", errno.EFBIG)
    monkeypatch.undo()
    outputs.out._store(b"more")
    assert (outputs.out.size, outputs.out.dropped) == (0, 8)

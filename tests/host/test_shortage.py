"""A shortage of descriptors, processes or memory is `overloaded`, whatever was tried."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest

from clisup.host.files import storage_error
from clisup.host.process import keepers
from clisup.host.shortage import overloaded, raise_shortage, shortage_of

SHORT = [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS]


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", SHORT)
def test_a_shortage_is_overloaded_and_never_a_fault_of_the_disk(number: int) -> None:
    error = storage_error("read", "/x", error_of(number))
    assert error.kind == "overloaded" and error.to_wire()["data"]["retryable"] is True
    assert "/x" in error.message and "try again" in error.hint
    with pytest.raises(OSError, match=os.strerror(number)):
        raise_shortage(error_of(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_a_fault_of_the_disk_stays_one(number: int) -> None:
    assert storage_error("read", "/x", error_of(number)).kind == "storage_failed"
    assert shortage_of(error_of(number)) is None
    raise_shortage(error_of(number))


def test_a_shortage_is_found_in_groups_causes_and_out_of_memory() -> None:
    caused = RuntimeError("x")
    caused.__cause__ = error_of(errno.EMFILE)
    for error in (
        MemoryError(),
        ExceptionGroup("g", [ValueError(), caused]),
        overloaded("read", error_of(errno.ENFILE)),
    ):
        found = shortage_of(error)
        assert found is not None and found.kind == "overloaded", error
    assert shortage_of(ExceptionGroup("g", [ValueError()])) is None


async def test_a_process_is_waited_for_while_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = os.pidfd_open, iter([error_of(errno.EMFILE)] * 2)

    def scarce(pid: int) -> int:
        if (error := next(failures, None)) is not None:
            raise error
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", scarce)
    monkeypatch.setattr(keepers, "SHORTAGE_PAUSE_S", 0.01)
    with subprocess.Popen(["true"]) as process:  # noqa: ASYNC220  it ends at once
        await keepers.wait_for_exit(process.pid)

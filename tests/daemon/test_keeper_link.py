"""The link to a keeper that hangs: it is told from one that waits for a full disk, and ended whatever it keeps waiting."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from clisup.daemon.runs import keeper_link
from clisup.daemon.runs.keeper_link import KeeperLink
from clisup.host import clock
from clisup.keeper.keeper import FLUSH_S
from clisup.store.session_dir import RunDir

LIMIT_S = 20.0
SESSION = "00000000-0000-4000-8000-000000000001"
HANGS = """
import fcntl, json, os, signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
lock = open("keeper.lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
server = socket.socket(socket.AF_UNIX)
server.bind("ctl.sock")
server.listen(1)
print(flush=True)
link, _ = server.accept()
link.recv(65536)
hello = {"pid": 0, "keeper_pid": os.getpid(), "last_id": 0}
link.sendall(json.dumps({"hello": hello}).encode() + b"\\n")
signal.sigwait({signal.SIGUSR1})
link.sendall(b'{"push": "blocked"}\\n')
signal.pause()
"""


class Owner:
    """Waits for a word of the disk; the others are of no interest."""

    def __init__(self) -> None:
        self.blocked = trio.Event()

    def set_blocked(self, blocked: bool) -> None:
        if blocked:
            self.blocked.set()

    async def take(self, out_size: int, err_size: int) -> None: ...

    def ignore(self, *_: object) -> None: ...


class Disk:
    def watched(self) -> Any:
        return nullcontext()


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    path = tmp_path / "sessions" / SESSION / "runs" / "1"
    path.mkdir(parents=True)
    (path / "intent.json").write_text("{}")
    return RunDir(str(path))


@pytest.fixture
def keeper(run_dir: RunDir) -> Iterator[subprocess.Popen[bytes]]:
    """One that answers hello and reads nothing more. At a signal it says that its disk is full."""
    popen = subprocess.Popen([sys.executable, "-I", "-S", "-c", HANGS], cwd=run_dir.path, stdout=subprocess.PIPE)
    assert popen.stdout is not None
    popen.stdout.readline()
    yield popen
    popen.kill()
    popen.communicate()


def link_of(run_dir: RunDir, owner: Owner) -> KeeperLink:
    return KeeperLink(
        run_dir, SESSION, 1, cast("Any", Disk()), set(), on_output=owner.take, on_change=owner.ignore,
        on_connected=owner.ignore, on_blocked=owner.set_blocked, on_acknowledged=owner.ignore,
    )  # fmt: skip


async def test_a_keeper_that_hangs_is_ended_also_while_it_is_being_told_something(
    run_dir: RunDir, keeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_link, "LADDER_SLACK_S", 0.2)
    link = link_of(run_dir, Owner())
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.listen)
            nursery.start_soon(link.deliver)
            link.in_order()
            await link.ready()
            link.say(1, "x" * 4_000_000)  # more than a socket takes
            await trio.testing.wait_all_tasks_blocked()
            link.order_end("client", [])
            while keeper.poll() is None:
                await link.send_end()
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    await link.aclose()


async def test_a_keeper_that_no_signal_ends_is_called_unkillable(
    run_dir: RunDir, keeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a debugger holds it at its exit, or the kernel waits for a disk."""

    async def in_vain(*_of: object, **_named: object) -> list[Any]:
        return []

    monkeypatch.setattr(keeper_link, "LADDER_SLACK_S", 0.05)
    monkeypatch.setattr(keeper_link, "sweep", in_vain)
    link = link_of(run_dir, Owner())
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.listen)
            link.in_order()
            await link.ready()
            link.order_end("client", [])
            assert not link.unkillable
            while not link.unkillable:
                await link.send_end()
                await trio.sleep(0.02)
            keeper.kill()
            while link.exited is None:
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert not link.unkillable
    await link.aclose()


@pytest.mark.fault(55)
@pytest.mark.parametrize("ordered_first", [True, False])
async def test_a_keeper_that_waits_for_a_full_disk_is_not_taken_for_one_that_hangs(
    run_dir: RunDir, keeper: subprocess.Popen[bytes], *, ordered_first: bool
) -> None:
    """It may hold the last words of its CLI, and how that has ended."""
    owner = Owner()
    link = link_of(run_dir, owner)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.listen)
            link.in_order()
            await link.ready()
            if ordered_first:
                link.order_end("client", [])
                await link.send_end()
            keeper.send_signal(signal.SIGUSR1)
            await owner.blocked.wait()
            if not ordered_first:
                link.order_end("client", [])
                await link.send_end()
            assert link.send_end_at is not None
            assert link.send_end_at - clock.monotonic() > FLUSH_S
            nursery.cancel_scope.cancel()
    await link.aclose()

"""What the service manager hears of a daemon's life, in its order; and when it hears nothing any more."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from harness import Harness, until

from clisup.daemon.service_status import ServiceStatus, VitalTasks, status_line
from clisup.errors import ClisupError
from clisup.host.systemd.notifier import Notifier


class Manager:
    """A notify socket, and all that was said to it."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.heard: list[str] = []
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}

    def _listen(self) -> None:
        while (data := self.sock.recv(4096)) != b"end":
            self.heard += data.decode().split("\n")

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"end", self.sock.getsockname())
        self.thread.join()
        self.sock.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def test_a_daemon_is_ready_when_it_serves_and_lives_until_it_stops(
    serve: Callable[..., Harness], manager: Manager
) -> None:
    daemon = serve(env=manager.env)
    until(lambda: "READY=1" in manager.heard)
    assert manager.heard.index("READY=1") + 1 == manager.heard.index("STATUS=0 sessions, 0 turns running")
    assert daemon.identity()["activated"] is False
    until(lambda: manager.heard.count("WATCHDOG=1") >= 3)
    daemon.stop()
    until(lambda: "STOPPING=1" in manager.heard)
    assert "EXTEND_TIMEOUT_USEC=30000000" in manager.heard[manager.heard.index("STOPPING=1") :]


def test_a_manager_that_is_gone_keeps_nobody_from_stopping_the_daemon(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(env={"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "400000"})
    until(lambda: '"event": "ready"' in daemon.log.read_text())
    assert daemon.stop() == 0


def test_a_manager_that_is_too_busy_hears_of_the_start_later(serve: Callable[..., Harness], tmp_path: Path) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as flood,
    ):
        sock.bind(str(tmp_path / "busy"))
        with pytest.raises(BlockingIOError):
            while True:
                flood.sendto(b"X=1", sock.getsockname())
        daemon = serve(env={"NOTIFY_SOCKET": str(tmp_path / "busy")})
        assert daemon.call("ping")
        sock.settimeout(30)
        while not sock.recv(4096).startswith(b"READY=1"):
            pass
        assert daemon.stop() == 0


def test_a_restart_in_place_is_a_reload(serve: Callable[..., Harness], manager: Manager) -> None:
    daemon = serve(env=manager.env)
    before = daemon.identity()["instance_id"]
    with daemon.wire() as wire:
        wire.call("daemon/restart")
    daemon.await_successor(before)
    until(lambda: manager.heard.count("READY=1") == 2)
    order = [line for line in manager.heard if line in ("READY=1", "RELOADING=1", "STOPPING=1")]
    assert order == ["READY=1", "RELOADING=1", "READY=1"]
    alive = manager.heard.count("WATCHDOG=1")
    until(lambda: manager.heard.count("WATCHDOG=1") > alive + 1)


def test_a_reload_of_the_configuration_is_one_also_where_it_fails(
    serve: Callable[..., Harness], manager: Manager
) -> None:
    daemon = serve(env=manager.env)
    daemon.call("daemon/reload")
    daemon.configure(raw="[daemon.no_such_table]\n")
    with daemon.wire() as wire, pytest.raises(ClisupError, match="no_such_table"):
        wire.call("daemon/reload")
    until(lambda: manager.heard.count("READY=1") == 3)
    order = [line for line in manager.heard if line in ("READY=1", "RELOADING=1")]
    assert order == ["READY=1", *(["RELOADING=1", "READY=1"] * 2)]


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"state": "starting", "sessions": 0, "running": 0}, "starting: taking up sessions"),
        ({"state": "ready", "sessions": 1, "running": 0}, "1 session, 0 turns running"),
        ({"state": "ready", "sessions": 9, "running": 1, "waiting": 2}, "9 sessions, 1 turn running, 2 waiting"),
        ({"state": "ready", "sessions": 0, "running": 0, "storage": "full"}, "0 sessions, 0 turns running, storage full"),
        ({"state": "draining", "sessions": 9, "running": 3}, "draining: 3 turns"),
    ],
)  # fmt: skip
def test_the_status_is_one_line(facts: dict[str, object], line: str) -> None:
    assert status_line(**facts) == line  # type: ignore[arg-type]


class Told(Notifier):
    def __init__(self) -> None:
        super().__init__("/nowhere", watchdog_s=0.02)
        self.lives = 0
        self.refusals = 2

    def watchdog(self) -> bool:
        self.lives += 1
        return True

    def _send(self, **fields: str | int) -> bool:
        self.refusals -= 1
        return self.refusals < 0


async def test_a_task_that_has_ended_is_the_end_of_the_signs_of_life() -> None:
    told, vitals, end = Told(), VitalTasks(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(vitals.keep, "serve", end.wait)
        nursery.start_soon(ServiceStatus(told, vitals, lambda: ("ready", "x")).run)
        while told.lives < 3:
            await trio.sleep(0.01)
        end.set()
        while vitals.ok:
            await trio.lowlevel.checkpoint()
        lives = told.lives
        for _ in range(5):
            await trio.sleep(told.watchdog_s or 0)
        assert told.lives == lives
        nursery.cancel_scope.cancel()


async def test_a_task_that_fails_is_no_sign_of_life_either() -> None:
    vitals = VitalTasks()

    async def fail() -> None:
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        await vitals.keep("serve", fail)
    assert not vitals.ok


async def test_that_it_is_ready_is_said_until_the_manager_has_taken_it() -> None:
    told = Told()
    with trio.fail_after(30):
        await ServiceStatus(told, VitalTasks(), lambda: ("ready", "x")).ready()
    assert told.refusals < 0


async def test_a_vital_task_begins_again_after_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clisup.daemon.service_status.SHORTAGE_PAUSE_S", 0.01)
    vitals, failures, working = VitalTasks(), iter([OSError(errno.EMFILE, "x"), MemoryError()]), trio.Event()

    async def task() -> None:
        if (error := next(failures, None)) is not None:
            raise error
        working.set()
        await trio.sleep_forever()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(vitals.keep, "task", task)
            await working.wait()
            assert vitals.ok
            nursery.cancel_scope.cancel()

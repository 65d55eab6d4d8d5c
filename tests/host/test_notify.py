"""What goes to the service manager, seen from its side of the socket; and that nothing waits or fails where there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.host.systemd.service import Notifier, notify_message


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def notifier(manager: socket.socket, **env: str) -> Notifier:
    return Notifier.of({"NOTIFY_SOCKET": manager.getsockname(), **env})


def heard(manager: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))


def test_a_message_is_a_line_for_each_field_and_no_value_brings_its_own() -> None:
    assert notify_message(READY=1, STATUS="two\nlines\r and a\ttab") == b"READY=1\nSTATUS=two lines and a tab"


def test_the_words_are_those_of_sd_notify(manager: socket.socket) -> None:
    speaker = notifier(manager, WATCHDOG_USEC="30000000")
    assert speaker.ready("3 sessions") and heard(manager) == {"READY": "1", "STATUS": "3 sessions"}
    assert speaker.status("draining") and heard(manager) == {"STATUS": "draining"}
    assert speaker.stopping() and heard(manager) == {"STOPPING": "1"}
    assert speaker.watchdog() and heard(manager) == {"WATCHDOG": "1"}
    assert speaker.extend(30) and heard(manager) == {"EXTEND_TIMEOUT_USEC": "30000000"}
    assert speaker.reloading()
    said = heard(manager)
    assert said.keys() == {"RELOADING", "MONOTONIC_USEC"}
    assert said["MONOTONIC_USEC"].isdecimal()


def test_an_abstract_address_begins_with_an_at(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0clisup@test/{os.getpid()}")
        assert Notifier.of({"NOTIFY_SOCKET": f"@clisup@test/{os.getpid()}"}).status("x")
        assert sock.recv(64) == b"STATUS=x"


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_watchdog_is_that_of_this_process_or_none(
    manager: socket.socket, env: dict[str, str], seconds: float | None
) -> None:
    assert notifier(manager, **env).watchdog_s == seconds
    assert notifier(manager, **env).watchdog() is (seconds is not None)


@pytest.mark.parametrize(
    "env", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "vsock:2:1"}]
)
def test_without_a_manager_nothing_is_said(env: dict[str, str]) -> None:
    speaker = Notifier.of({"WATCHDOG_USEC": "1000", **env})
    assert not speaker.listening
    assert not (speaker.ready("x") or speaker.watchdog() or speaker.stopping() or speaker.extend(1))


def test_a_manager_that_is_gone_or_too_busy_holds_nobody_up(manager: socket.socket, tmp_path: Path) -> None:
    speaker = notifier(manager)
    sent = 0
    while speaker.status("x"):
        sent += 1
    assert sent
    assert not Notifier.of({"NOTIFY_SOCKET": str(tmp_path / "absent")}).ready("x")

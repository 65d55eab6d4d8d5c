"""`clisup daemon restart` against a fake daemon that comes back, or does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SILENCE, FakeDaemon, Peer

from clisup.cli.commands import daemon as daemon_command
from clisup.errors import ConfigurationError

Run = Callable[..., Any]


def restarts(daemon: FakeDaemon, after: int | None) -> None:
    """From its request on, the daemon is the old one `after` times more, then another; for ever the old one with None."""
    left = [after]

    def restart(peer: Peer, params: dict[str, Any]) -> Any:
        daemon.handlers["initialize"] = initialize
        return {"running": 2, "instance_id": "one"}

    def initialize(peer: Peer, params: dict[str, Any]) -> Any:
        if left[0] is None or left[0] > 0:
            left[0] = left[0] and left[0] - 1
            instance = "one"
        else:
            instance = "two"
        return {"protocol_version": 1, "server": {"pid": 123, "version": "0.2.0", "instance_id": instance}}

    daemon.handlers["daemon/restart"] = restart


def test_restart_waits_until_another_daemon_serves(clisup: Run, daemon: FakeDaemon) -> None:
    restarts(daemon, after=2)
    ran = clisup("daemon", "restart")
    assert (ran.code, ran.out) == (0, "restarted: clisup 0.2.0, pid 123\n")
    assert "2 running turns go on" in ran.err
    assert len(daemon.calls("initialize")) == 4


def test_restart_waits_while_nobody_serves(clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    def goes(peer: Peer, params: dict[str, Any]) -> Any:
        peer.send({"jsonrpc": "2.0", "id": peer.asked, "result": {"running": 0, "instance_id": "one"}})
        restarts(daemon, after=0)
        daemon.handlers["daemon/restart"](peer, params)
        daemon.stop()
        gone.set()
        return SILENCE

    def comes(seconds: float) -> None:
        assert gone.wait(20)
        monkeypatch.undo()
        monkeypatch.setenv("CLISUP_SOCKET", daemon.path)
        daemon.start()

    monkeypatch.setattr(daemon_command.time, "sleep", comes)
    daemon.handlers["daemon/restart"] = goes
    ran = clisup("daemon", "restart")
    assert (ran.code, ran.out) == (0, "restarted: clisup 0.2.0, pid 123\n")


def test_restart_as_json_says_who_serves_now(clisup: Run, daemon: FakeDaemon) -> None:
    restarts(daemon, after=0)
    assert json.loads(clisup("daemon", "restart", "--json").out)["instance_id"] == "two"


def test_a_daemon_that_would_not_start_again_goes_on(clisup: Run, daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise ConfigurationError("cannot restart, because x is wrong", kind="unsupported", hint="mend that first")

    daemon.handlers["daemon/restart"] = refuse
    ran = clisup("daemon", "restart")
    assert (ran.code, ran.out) == (2, "")
    assert "mend that first" in ran.err


def test_restart_does_not_wait_for_ever(clisup: Run, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_command, "RESTART_TIMEOUT_S", 0.05)
    restarts(daemon, after=None)
    ran = clisup("daemon", "restart")
    assert ran.code == 3
    assert "its log says why" in ran.err


def test_restart_without_a_daemon_is_exit_3(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.stop()
    assert clisup("daemon", "restart").code == 3


def test_the_group_alone_shows_its_commands(clisup: Run) -> None:
    ran = clisup("daemon")
    assert ran.code == 0
    assert "\n  restart  Restart the daemon in" in ran.out


def test_its_command_has_an_example_too(clisup: Run) -> None:
    assert "clisup daemon restart" in clisup("daemon", "restart", "--help").out.split("Example:")[1]


# -- reload


def reloads(daemon: FakeDaemon, *effects: str) -> None:
    names = [f"daemon.key_{number}" for number in range(len(effects))]
    rows = [{"key": name, "what": "changed", "effect": effect} for name, effect in zip(names, effects, strict=True)]
    daemon.handlers["daemon/reload"] = lambda peer, params: {"file": "/etc/clisup.toml", "changed": rows}


def test_reload_shows_what_has_changed_and_when_it_takes_effect(clisup: Run, daemon: FakeDaemon) -> None:
    reloads(daemon, "at_once", "next_turn", "next_connection", "start", "later_version")
    ran = clisup("daemon", "reload")
    head, titles, *rows = ran.out.splitlines()
    assert (ran.code, head) == (0, "5 changes: /etc/clisup.toml")
    assert titles.split() == ["KEY", "WHAT", "TAKES", "EFFECT"]
    words = ["at once", "next turn", "next connection", "stop and start", "later_version"]
    assert all(row.endswith(word) for row, word in zip(rows, words, strict=False))
    assert "clisup stop, then clisup start" in rows[-1]
    assert daemon.calls("daemon/reload") == [{"dry_run": False}]


def test_reload_without_a_change_says_so(clisup: Run, daemon: FakeDaemon) -> None:
    reloads(daemon)
    assert clisup("daemon", "reload") == (0, "nothing has changed: /etc/clisup.toml\n", "")


def test_a_dry_run_is_told_to_the_daemon(clisup: Run, daemon: FakeDaemon) -> None:
    reloads(daemon, "at_once")
    assert clisup("daemon", "reload", "--dry-run").out.startswith("1 change to come: ")
    assert daemon.calls("daemon/reload") == [{"dry_run": True}]


def test_reload_as_json_is_the_daemons_answer(clisup: Run, daemon: FakeDaemon) -> None:
    reloads(daemon, "at_once")
    assert json.loads(clisup("daemon", "reload", "--json").out)["changed"][0]["effect"] == "at_once"


def test_a_configuration_that_cannot_be_used_is_exit_78(clisup: Run, daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        raise ConfigurationError("cannot use /etc/clisup.toml, because 'x' (line 3) is wrong", hint="correct it")

    daemon.handlers["daemon/reload"] = refuse
    ran = clisup("daemon", "reload")
    assert (ran.code, ran.out) == (78, "") and "(line 3)" in ran.err and "hint: correct it" in ran.err

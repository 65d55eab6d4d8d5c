"""The shipped unit under a real systemd: what a restart, a stop, a crash and a reload of it do to a running turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import until
from service import Service
from turns import RunningTurn

UNDER_USER = pytest.mark.parametrize("running", ["user"], indirect=True, scope="module")
BOTH_MANAGERS = pytest.mark.parametrize("running", ["user", "system"], indirect=True, scope="module")


@BOTH_MANAGERS
def test_a_restart_by_systemd_lets_the_turn_go_on_whatever_a_stop_does(service: Service) -> None:
    running, before = RunningTurn(service), service.main_pid
    service.systemctl("restart")
    service.await_daemon()
    assert "systemd restarts this unit" in service.said()
    assert service.main_pid != before
    assert service.call("daemon/status")["daemon"]["adopted_turns"] == 1
    assert running.finish()["text"].endswith("the last word")
    assert service.show("ActiveState", "Result") == {"ActiveState": "active", "Result": "success"}


@BOTH_MANAGERS
def test_a_stop_by_systemd_is_a_stop(service: Service) -> None:
    session = service.new()
    turn = session.prompt("a word\n@stall")
    session.await_event("content_delta")
    service.stop()
    assert service.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    assert not service.processes()
    assert Path(service.socket).is_socket(), "it was systemd's"
    service.start()
    assert session.end_of(turn)["outcome"] != "completed"


@UNDER_USER
def test_a_killed_daemon_comes_back_and_the_turn_has_gone_on(service: Service) -> None:
    running, before = RunningTurn(service), service.main_pid
    service.systemctl("kill", "--signal=KILL", "--kill-who=main")
    until(lambda: service.main_pid not in (0, before), "systemd does not start it again")
    service.await_daemon()
    assert running.finish()["text"].endswith("the last word")


@UNDER_USER
@pytest.mark.parametrize("way", ["clisup daemon restart", "systemctl reload"])
def test_a_restart_in_place_is_none_for_systemd(service: Service, way: str) -> None:
    properties = ("MainPID", "InvocationID", "NRestarts", "ActiveEnterTimestampMonotonic", "ActiveState")
    running, before = RunningTurn(service), service.show(*properties)
    instance = service.call("initialize")["server"]["instance_id"]
    if way.startswith("clisup"):
        service.clisup("daemon", "restart")
    else:
        service.systemctl("reload")
    assert service.call("initialize")["server"]["instance_id"] != instance
    until(lambda: service.show(*properties) == before, "it is not active again")
    assert service.show("StatusText")["StatusText"].endswith(", 1 turn running")
    assert running.finish()["text"].endswith("the last word")

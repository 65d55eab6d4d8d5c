"""The shipped unit under a real systemd: what a restart, a stop, a crash and a reload of it do to a running turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import until
from service import Service
from session_probe import SessionProbe

CHUNKS = 60
UNDER_USER = pytest.mark.parametrize("running", ["user"], indirect=True, scope="module")
BOTH_MANAGERS = pytest.mark.parametrize("running", ["user", "system"], indirect=True, scope="module")


class RunningTurn:
    """A turn in the middle of its answer, and a client that follows it. It cannot end before `finish` lets it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.gate = Path(service.lab.root) / f"go-{service.manager}"
        self.gate.unlink(missing_ok=True)
        self.session: SessionProbe = service.new()
        self.follower = service.wire()
        self.follower.call("session/subscribe", session_id=self.session.id, after_seq=0)
        self.turn = self.session.prompt(f"@stream {CHUNKS} 13 0.02\n@wait-file {self.gate}\nthe last word")
        self.heard = self.follower.events_until("content_delta")

    def finish(self) -> dict[str, Any]:
        """Let it end; the follower comes back by its cursor. Every event is there once, for it and in the journal."""
        self.follower.close()
        self.gate.touch()
        with self.service.wire() as wire:
            wire.call("session/subscribe", session_id=self.session.id, after_seq=self.heard[-1]["seq"])
            self.heard += wire.events_until("turn_completed")
        assert [event["seq"] for event in self.heard] == list(range(1, len(self.heard) + 1))
        assert self.session.events()[: len(self.heard)] == self.heard
        assert self.session.chunks() == list(range(CHUNKS))
        assert [event["exit_code"] for event in self.session.events("process_exited")] == [0]
        assert len(self.session.events("process_started")) == 1
        return self.session.end_of(self.turn)


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
    assert service.show(*properties) == before
    assert running.finish()["text"].endswith("the last word")

"""A daemon that hangs is ended and its turns go on; a drain that takes longer than the unit allows is given the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import until
from service import CONFIG, Service, drop_in, reload_units, write_config
from turns import RunningTurn

pytestmark = pytest.mark.parametrize("running", ["user"], indirect=True, scope="module")
WATCHDOG_S = 8  # long enough for a machine that is busy with other tests
STOP_LIMIT_S = 2


@contextmanager
def with_settings(service: Service, text: str) -> Iterator[None]:
    """The service, stopped at first, with these lines more in its unit."""
    service.stop()
    extra = drop_in(service.lab, "user", service.unit, text, "extra")
    reload_units(service.lab)
    try:
        yield
    finally:
        extra.unlink()
        reload_units(service.lab)


@contextmanager
def drains(service: Service) -> Iterator[None]:
    """A stop lets turns end, for as long as they like."""
    write_config(service.home, CONFIG.replace('"kill"', '"drain"\ndrain_s = 300'))
    try:
        yield
    finally:
        write_config(service.home, CONFIG)


def test_a_loop_that_hangs_is_ended_by_the_watchdog_and_no_turn_is_lost(service: Service) -> None:
    with with_settings(service, f"WatchdogSec={WATCHDOG_S}\nTimeoutAbortSec=5\n"):
        service.start()
        running, before = RunningTurn(service), service.main_pid
        service.systemctl("kill", "--signal=STOP", "--kill-who=main")
        until(lambda: service.main_pid not in (0, before), "nobody has ended it", 90)
        service.await_daemon()
        assert "Fatal Python error: Aborted" in service.said(), "no trace of where it hung"
        assert running.finish()["text"].endswith("the last word")
        assert service.show("NRestarts") == {"NRestarts": "1"}


def test_a_healthy_daemon_outlives_its_watchdog_also_through_a_restart_in_place(service: Service) -> None:
    with with_settings(service, f"WatchdogSec={2 * WATCHDOG_S}\n"):
        service.start()
        before = service.main_pid
        service.clisup("daemon", "restart")
        stamp = service.show("WatchdogTimestampMonotonic")
        # Two more signs of life come from the successor: it knows of the watchdog, too.
        for _ in range(2):
            until(lambda stamp=stamp: service.show("WatchdogTimestampMonotonic") != stamp, "no sign of life")
            stamp = service.show("WatchdogTimestampMonotonic")
        assert service.show("MainPID", "NRestarts", "ActiveState") == {
            "MainPID": str(before),
            "NRestarts": "0",
            "ActiveState": "active",
        }


def test_a_drain_takes_the_time_that_the_turn_needs(service: Service) -> None:
    with with_settings(service, f"TimeoutStopSec={STOP_LIMIT_S}\n"), drains(service):
        service.start()
        running = RunningTurn(service)
        service.systemctl("stop", "--no-block")
        until(
            lambda: service.show("StatusText") == {"StatusText": "draining: 1 turn"}, "it does not say that it drains"
        )
        since = int(service.show("StateChangeTimestampMonotonic")["StateChangeTimestampMonotonic"]) / 1e6
        until(lambda: time.monotonic() > since + 3 * STOP_LIMIT_S)
        assert service.show("ActiveState") == {"ActiveState": "deactivating"}
        running.follower.close()
        running.gate.touch()
        until(lambda: service.show("ActiveState") == {"ActiveState": "inactive"}, "the drain does not end")
        assert service.show("Result") == {"Result": "success"}
        write_config(service.home, CONFIG)
        service.start()
        assert running.finish()["outcome"] == "completed"

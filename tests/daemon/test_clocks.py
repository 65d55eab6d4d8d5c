"""Wall clocks that jump and machines that sleep: a daemon whose clocks are tampered with, in front of real processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

# The daemon with one of its clocks replaced. The environment comes over in a memory file, as after its own re-execution.
TAMPERED = """
import json, os, sys
fd = os.memfd_create("environment")
os.write(fd, json.dumps(dict(os.environ)).encode())
os.environ["CLISUP_ENVIRONMENT_FD"] = str(fd)
import clisup.host.clock as clock
{tampering}
from clisup.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
JUMPING = """
import datetime, itertools, time, types
days = itertools.cycle((1, -1, 30, -365))
class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(days=next(days))
clock.datetime = Jumping
clock.time = types.SimpleNamespace(**vars(time) | {"time_ns": lambda: time.time_ns() + next(days) * 86_400 * 10**9})
"""
SUSPENDING = """
real = clock.suspended
clock.suspended = lambda: real() + (3600 if os.path.exists({flag!r}) else 0)
"""


def tampered(daemon: Harness, tampering: str) -> None:
    """Start this harness's daemon with that done to its clock."""
    code = TAMPERED.replace("{tampering}", tampering)
    daemon.cold, daemon.argv = True, lambda: [sys.executable, "-c", code, *daemon.arguments()]  # type: ignore[method-assign]
    daemon.start()


@pytest.mark.fault(53)
def test_a_wall_clock_that_jumps_by_days_moves_no_timer(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False, timeouts={"model_idle": 1.0, "turn": 60})
    tampered(daemon, JUMPING)
    healthy, hung = daemon.new(), daemon.new()
    healthy.prompt("@stream 15 20 0.2")
    assert hung.ask("a word\n@stall")["error"]["kind"] == "idle_timeout"
    assert healthy.end_of("t1")["outcome"] == "completed"
    stamps = [event["ts"] for event in healthy.events()]
    assert stamps != sorted(stamps), "the clock did jump"


SET = """
import datetime, time, types
by = {by!r}
class Set(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=by)
clock.datetime = Set
clock.time = types.SimpleNamespace(**vars(time) | {{"time_ns": lambda: time.time_ns() + int(by * 10**9),
                                                   "time": lambda: time.time() + by}})
"""
YEARS = 20 * 365 * 86_400


@pytest.mark.fault(88)
@pytest.mark.parametrize(("first", "then"), [(-YEARS, 0), (0, 5 * YEARS)])
def test_a_session_of_before_the_clock_was_set_is_neither_closed_nor_removed(
    serve: Callable[..., Harness], first: int, then: int
) -> None:
    limits = {"retention": {"days": 1, "idle_close": 86_400, "every_s": 0.1}}
    daemon = serve(start=False, daemon=limits)
    tampered(daemon, SET.format(by=first))
    rests, closed = daemon.new(), daemon.new()
    rests.ask("Hello.")
    closed.ask("Hello.")
    closed.call("close")
    until((daemon.state / "clock.json").exists)
    daemon.stop()
    tampered(daemon, SET.format(by=then))
    until(lambda: json.loads((daemon.state / "clock.json").read_text())["since"])
    assert rests.ask("Hello again.")["outcome"] == "completed"
    assert daemon.call("daemon/gc", dry_run=True, older_than_s=86_400)["items"] == []
    assert all(row["age_s"] >= 0 for row in daemon.call("session/list")["sessions"])
    assert closed.get()["state"] == "closed" and closed.events("turn_completed")


@pytest.mark.fault(88)
def test_a_message_of_before_the_clock_was_set_is_not_given_up_as_too_old(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    command = json.dumps(["/bin/sh", "-c", f"[ -e {tmp_path}/go ] && cat > {tmp_path}/message"])
    table = f'[[notify]]\nname = "sh"\ncommand = {command}\non = ["turn_failed"]\n'
    daemon = serve(start=False, raw=table)
    tampered(daemon, SET.format(by=-YEARS))
    daemon.new().ask("@error server")
    until(lambda: daemon.call("notify/list")["targets"][0]["failed"] > 0)
    daemon.kill()
    (tmp_path / "go").touch()
    tampered(daemon, SET.format(by=0))
    until((tmp_path / "message").exists)


@pytest.mark.fault(54)
def test_after_a_suspend_a_running_turn_is_told_and_gets_a_new_window(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(start=False, timeouts={"model_idle": 30})
    tampered(daemon, SUSPENDING.replace("{flag!r}", repr(str(tmp_path / "slept"))))
    session = daemon.new()
    session.prompt(f"a word\n@wait-file {tmp_path}/go")
    session.cli()
    (tmp_path / "slept").touch()
    notice = session.await_event("notice", code="resumed")
    assert "3600 s" in notice["message"]
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"

"""Never the healthy, never spared the hung: evidence, limits, the gentle ladder, and what a dead keeper leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

from clisup.host.process.cgroups import CgroupHome

needs_cgroup = pytest.mark.skipif(not CgroupHome.find().available, reason="no cgroup v2 can be made here")
BUSY = "while :; do :; done"


@pytest.mark.fault(15)
def test_a_silent_tool_at_work_gets_new_windows_and_not_for_ever(serve: Callable[..., Harness]) -> None:
    # Three windows are over before 3 s: then the demo CLI says that a task of this command began, which is life.
    session = serve(timeouts={"tool_idle": 0.6}, limits={"evidence_windows": 2}).new()
    assert session.ask(f"@bash {BUSY}")["error"]["kind"] == "idle_timeout"
    actions = [event["action"] for event in session.events("watchdog") if event["action"] != "warned"]
    credited = session.events("watchdog", action="credited")
    assert actions == ["credited", "credited", "fired"]
    assert [event["evidence"]["windows_left"] for event in credited] == [1, 0]
    assert all(event["evidence"]["grew"] and event["evidence"]["processes"] >= 2 for event in credited)


def test_a_tool_at_work_that_then_speaks_was_not_killed(serve: Callable[..., Harness], tmp_path: Path) -> None:
    session = serve(timeouts={"tool_idle": 0.9}, limits={"evidence_windows": 100}).new()
    session.prompt(f"@bash until [ -e {tmp_path}/go ]; do :; done; echo spoken")
    session.await_event("watchdog", action="credited", nth=2)
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert session.events("tool_result")[0]["content"] == "spoken"


def test_a_sleeping_tool_is_ended_and_the_event_says_what_was_seen(serve: Callable[..., Harness]) -> None:
    session = serve(timeouts={"tool_idle": 0.6}).new()
    assert session.ask("@bash sleep 300")["outcome"] == "timed_out"
    fired = session.events("watchdog", action="fired")[0]["evidence"]
    assert fired["grew"] is False and fired["processes"] >= 2 and fired["open_tools"] == ["Bash"]
    assert not session.processes()


def test_a_heartbeat_of_the_cli_is_no_life_of_its_tool(serve: Callable[..., Harness]) -> None:
    """claude says every 30 s that a tool still runs, also of one that hangs."""
    session = serve(timeouts={"tool_idle": 4}).new()
    assert session.ask("@heartbeat 0.2\n@bash sleep 300")["outcome"] == "timed_out"
    assert len(session.events("tool_progress")) > 1
    assert session.events("watchdog", action="fired")[0]["phase"] == "tool"


def test_the_watchdog_begins_with_sigint_and_keeps_what_was_said(serve: Callable[..., Harness]) -> None:
    session = serve(timeouts={"model_idle": 0.5}).new()
    end = session.ask("half an answer\n@stall")
    exited = session.events("process_exited")[0]
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert (exited["exit_code"], exited["ended_by"]) == (0, "watchdog:model")
    assert "half an answer" in str(session.events("message"))


@pytest.mark.parametrize(("limit", "script"), [("pids", "@bash sleep 60 & sleep 60 & sleep 60 & sleep 60 & wait"),
                                               ("memory", "@bash sleep 300")])  # fmt: skip
def test_a_run_over_its_limit_ends_as_such(serve: Callable[..., Harness], limit: str, script: str) -> None:
    session = serve(limits={limit: 3}).new()
    end = session.ask(script)
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "resource_limit")
    assert limit in end["error"]["message"]
    assert session.events("process_exited")[0]["ended_by"] == limit
    assert not session.processes()


def test_retries_beyond_the_allowed_end_the_turn_with_their_error(serve: Callable[..., Harness]) -> None:
    session = serve(limits={"retries": 2}).new()
    end = session.ask("@retry overloaded 9\n@stall")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "overloaded")
    assert session.events("process_exited")[0]["ended_by"] == "retry:overloaded"


def test_why_a_turn_is_still_alive_can_be_asked(serve: Callable[..., Harness]) -> None:
    session = serve(timeouts={"model_idle": 50, "turn": 500}).new()
    assert session.get()["watch"] is None
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    watch = session.get()["watch"]
    assert (
        watch["phase"] == "model"
        and watch["next"] == "the model timer ends the run, unless the CLI gives a sign of life before"
    )
    assert [timer["phase"] for timer in watch["timers"]] == ["model", "turn"]
    assert [step[0] for step in watch["ladder"]] == ["INT", "TERM", "KILL"]
    session.call("interrupt", mode="kill")


@needs_cgroup
@pytest.mark.fault(4)
def test_with_a_cgroup_not_even_a_cleared_environment_outlives_a_killed_keeper(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    session = serve().new()
    session.prompt(
        f"@bash env -i setsid sh -c 'echo $$ > {tmp_path}/pid; touch {tmp_path}/up; exec sleep 300' & sleep 300"
    )
    until((tmp_path / "up").exists)
    os.kill(session.keeper(), signal.SIGKILL)
    assert session.end_of("t1")["error"]["kind"] == "crashed"
    assert _dead(int((tmp_path / "pid").read_text()))
    cgroup = session.events("process_started")[0]["cgroup"]
    assert not Path(cgroup).exists(), "an empty cgroup is removed"


def test_leftovers_of_a_keeper_that_died_without_a_daemon_are_ended_at_the_next_start(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    """The turn had ended, its run's record is there: nobody would look at it again."""
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    run = session.dir / "runs" / "1"
    stray = _stray(session.id, tmp_path)
    assert (run / "exit.json").exists() and Path(f"/proc/{stray}").exists()
    daemon.restart()
    until(lambda: _gone(stray))


def test_a_stranger_with_markers_of_another_state_directory_is_left_alone(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    stray = _stray("00000000-0000-4000-8000-000000000000", tmp_path)
    daemon.restart()
    assert not _gone(stray)
    os.kill(stray, signal.SIGKILL)
    os.waitpid(stray, 0)


def _dead(pid: int) -> bool:
    """Gone, or a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _stray(session_id: str, scratch: Path) -> int:
    """A process that carries a run's markers, as a tool would that outlived its keeper."""
    env = {"CLISUP_SESSION": session_id, "CLISUP_RUN": "1"}
    pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], env, setsid=True)
    until(lambda: b"CLISUP_RUN=1" in Path(f"/proc/{pid}/environ").read_bytes())
    return pid


def _gone(pid: int) -> bool:
    done, _ = os.waitpid(pid, os.WNOHANG)
    return done == pid

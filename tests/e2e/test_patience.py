"""How long the real claude is waited for, and what is left when the patience is over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab, poll, text_of

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


def limits(**values: float) -> str:
    return "[backends.claude.limits]\n" + "\n".join(f"{name} = {value}" for name, value in values.items())


def exit_of(here: ClaudeLab, session: str) -> dict[str, Any]:
    """The session's one `process_exited`."""
    (exited,) = here.events(session, "process_exited")
    return exited


# -- announced retries ------------------------------------------------------------------------------------------------


@pytest.mark.fault(73)
@pytest.mark.parametrize(("scenario", "kind"), [("http_529", "overloaded"), ("http_429_final", "rate_limit")])
def test_retries_beyond_the_limit_end_the_turn_with_their_own_error(
    lab: Callable[..., ClaudeLab], scenario: str, kind: str
) -> None:
    here = lab(scenario, config=limits(retries=2))
    turn = here.turn()
    retries = here.events(turn["session_id"], "retry")
    assert turn["outcome"] == "failed"
    assert turn["error"]["kind"] == kind and turn["error"]["retryable"]
    assert [retry["attempt"] for retry in retries] == [1, 2, 3]  # the third was announced, and not waited for
    assert len(here.api.main_requests) == 3
    assert exit_of(here, turn["session_id"])["ended_by"] == f"retry:{kind}"


def test_limits_that_are_not_reached_change_nothing(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_429_short", config=limits(retries=2, retry_wait_s=10))
    turn = here.turn()
    assert turn["outcome"] == "completed" and turn["text"] == "At last."
    assert len(here.events(turn["session_id"], "retry")) == 2
    assert exit_of(here, turn["session_id"])["ended_by"] == "cli"


@pytest.mark.fault(73)
def test_a_wait_longer_than_the_limit_ends_the_turn_at_once_and_says_how_long(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("http_429_wait_30", config=limits(retry_wait_s=2))
    began = time.monotonic()
    turn = here.turn()
    assert time.monotonic() - began < 20
    assert turn["outcome"] == "failed" and turn["error"]["kind"] == "rate_limit"
    assert 30 <= turn["error"]["retry_after_s"] < 60  # the CLI adds some jitter to the API's 30
    assert len(here.api.main_requests) == 1
    assert exit_of(here, turn["session_id"])["ended_by"] == "retry:rate_limit"


def test_a_fallback_model_is_told_and_its_answer_completes_the_turn(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("fallback_model", config='args = ["--fallback-model", "claude-sonnet-4-5"]')
    turn = here.turn()
    told = [e for e in here.events(turn["session_id"], "status") if e["status"] == "model_fallback"]
    assert turn["outcome"] == "completed" and turn["text"] == "from the fallback"
    assert len(told) == 1 and "sonnet" in told[0]["detail"]


# -- streams that break -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "final"),
    [
        ("cut_mid_stream", "The whole answer."),
        ("cut_after_tool", "Went on."),
        ("sse_error_event", "The whole answer."),
    ],
)
def test_a_stream_that_breaks_ends_with_the_right_text(
    lab: Callable[..., ClaudeLab], scenario: str, final: str
) -> None:
    here = lab(scenario)
    turn = here.turn("Use your tools.", **BYPASS)
    events = here.events(turn["session_id"])
    assert turn["outcome"] == "completed" and turn["text"] == final
    assert next(e for e in events if e["type"] == "turn_completed")["text"] == final
    assert text_of([e for e in events if not e.get("synthetic")]).endswith(final)
    assert exit_of(here, turn["session_id"])["ended_by"] == "cli"
    assert not [e for e in events if e["type"] == "unparsed"]


def test_a_tool_that_ran_before_the_cut_is_not_run_again(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("cut_after_tool")
    session = here.turn("Use your tools.", **BYPASS)["session_id"]
    uses, results = here.events(session, "tool_use"), here.events(session, "tool_result")
    assert [e["tool_use_id"] for e in uses] == [e["tool_use_id"] for e in results]
    assert len(uses) == 1 and results[0]["content"] == "ran"


# -- the watchdog's ladder --------------------------------------------------------------------------------------------


@pytest.mark.fault(15)
def test_a_stall_that_the_watchdog_ends_keeps_the_partial_text_and_the_session(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("stall_then_answer", config="[backends.claude.timeouts]\nmodel_idle = 3")
    turn = here.turn()
    session = turn["session_id"]
    exited = exit_of(here, session)
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert text_of(here.events(session, "message")).startswith("The answer is")
    assert (exited["ended_by"], exited.get("exit_code"), exited.get("signal")) == ("watchdog:model", 0, None)
    assert exited["survivors"] == []
    assert [e["action"] for e in here.events(session, "watchdog")] == ["warned", "fired"]
    again = here.turn("And now?", session=session)
    assert again["outcome"] == "completed" and again["text"] == "The whole answer."


# -- what outlives the CLI --------------------------------------------------------------------------------------------


def start_of(pid: int) -> str | None:
    """With the pid, the name of a process; None where none lives by that pid (a zombie has left)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def marked(session: str) -> dict[int, tuple[str | None, str]]:
    """pid: (start time, command line) of every process with the session's marker."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"CLISUP_SESSION={session}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = (start_of(int(entry.name)), words)
            except OSError:
                continue
    return found


def gone(tree: dict[int, tuple[str | None, str]]) -> bool:
    return not any(start is not None and start_of(pid) == start for pid, (start, _) in tree.items())


def stubborn(session: str) -> dict[int, tuple[str | None, str]]:
    """The loop in a session of its own that ignores SIGTERM, without the child that it has just forked for its sleep."""
    return {
        pid: told
        for pid, told in marked(session).items()
        if told[1].startswith("sh -c trap") and _leads_its_session(pid)
    }


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def with_its_loop(here: ClaudeLab, **params: Any) -> tuple[str, dict[int, Any]]:
    """A session whose tool has started its loop: the session, and the whole tree by then."""
    session = here.open(**BYPASS, **params)
    here.prompt(session, "Use your tools.")
    poll(lambda: stubborn(session), "the tool's loop")
    return session, marked(session)


@pytest.mark.fault(10)
@pytest.mark.parametrize("by", ["watchdog", "interrupt"])
def test_a_tool_child_that_ignores_sigterm_in_its_own_session_is_dead_and_named(
    lab: Callable[..., ClaudeLab], by: str
) -> None:
    here = lab("stubborn_child", config="[backends.claude.timeouts]\nterm_grace = 2")
    # the loop works, so that silence alone would be given more windows: the turn's own limit is not moved by them
    session, tree = with_its_loop(here, timeouts={"turn": 5.0 if by == "watchdog" else 0.0})
    loop = stubborn(session)
    if by == "interrupt":
        with here.client() as client:
            client.call("session/interrupt", session_id=session)
    done = here.wait_for(session, "turn_completed")
    exited = exit_of(here, session)
    assert gone(tree) and not marked(session)
    assert done["outcome"] == ("timed_out" if by == "watchdog" else "interrupted")
    assert exited["ended_by"] == ("watchdog:turn" if by == "watchdog" else "client")
    assert set(loop) <= {survivor["pid"] for survivor in exited["survivors"]}
    assert all(survivor["comm"] for survivor in exited["survivors"])


@pytest.mark.fault(4)
def test_a_killed_keeper_takes_the_cli_and_its_tool_with_it(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("stubborn_child")
    session, tree = with_its_loop(here)
    cli = here.wait_for(session, "process_started")["pid"]
    assert cli in tree and len(tree) >= 3  # claude, the tool's shell, the loop
    kill_keeper_of(cli)
    poll(lambda: gone(tree) and not marked(session), "the end of the tree", limit=5.0)
    done = here.wait_for(session, "turn_completed")
    assert done["outcome"] == "failed" and done["error"]["kind"] == "crashed"
    assert exit_of(here, session)["ended_by"] == "unknown"
    assert here.events(session, "turn_completed") == [done]


@pytest.mark.fault(4)
@pytest.mark.fault(10)
def test_a_killed_keeper_leaves_nothing_in_its_cgroup_that_cleared_its_environment(
    lab: Callable[..., ClaudeLab],
) -> None:
    here = lab("bare_child")
    session = here.open(**BYPASS)
    here.prompt(session, "Use your tools.")
    started = here.wait_for(session, "process_started")
    if (cgroup := started.get("cgroup")) is None:
        pytest.skip("no cgroup can be made here")
    bare = poll(lambda: unmarked(cgroup), "the tool's loop without a marker")
    kill_keeper_of(started["pid"])
    poll(lambda: gone(bare), "the end of the loop", limit=5.0)
    assert here.wait_for(session, "turn_completed")["error"]["kind"] == "crashed"
    poll(lambda: not Path(cgroup).exists(), "the cgroup's removal", limit=5.0)


def unmarked(cgroup: str) -> dict[int, tuple[str | None, str]]:
    """The loop of `bare_child`, which has no environment at all: found by its cgroup."""
    found = {}
    for pid in map(int, Path(cgroup, "cgroup.procs").read_text().split()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            bare = b"CLISUP_" not in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if bare and "trap" in words:
            found[pid] = (start_of(pid), words)
    return found


def kill_keeper_of(cli: int) -> None:
    """SIGKILL for the parent of a CLI."""
    keeper = int(Path(f"/proc/{cli}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert b"keeper" in Path(f"/proc/{keeper}/cmdline").read_bytes()
    os.kill(keeper, signal.SIGKILL)

"""Prompts that are said into a running turn: merged, or a turn of their own; lost and doubled never."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe
from wire import Hangup

from clisup.daemon.sessions.settings import MAX_OPEN
from clisup.errors import ClisupError

LIVE = {"mode": "live"}
AGENT = Path(__file__).with_name("live_agent.py")


def steer(session: SessionProbe, text: str, **params: Any) -> dict[str, Any]:
    """The answer to a steered prompt."""
    return dict(session.call("prompt", prompt=text, when_busy="steer", **params))


def at_a_tool(session: SessionProbe, gate: str = "go") -> str:
    """A turn that waits in a tool until the file is there."""
    turn = session.prompt(f"@bash while ! [ -e {gate} ]; do sleep 0.05; done; echo passed\nthe end")
    session.await_event("tool_use", turn_id=turn)
    return turn


def taken_in(session: SessionProbe) -> int:
    """How many prompts the CLI has read so far: it says so in a frame that is no event."""
    return sum(spool.read_bytes().count(b'"queued"') for spool in session.dir.glob("runs/*/out.spool"))


def test_a_cli_at_a_tool_takes_a_steered_prompt_into_its_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    turn = at_a_tool(session)
    before = taken_in(session)
    said = steer(session, "@text steered", key="s1")
    assert (said["turn_id"], said["delivery"]) == (turn, "steered")
    until(lambda: taken_in(session) > before)
    (daemon.cwd / "go").touch()
    end = session.end_of(turn)
    assert end["prompt_ids"][1:] == [said["prompt_id"]]
    accepted = session.events("prompt_accepted", delivery="steered")[0]
    assert (accepted["turn_id"], accepted["prompt_id"], accepted["seq"]) == (turn, said["prompt_id"], said["seq"])
    again = session.call("prompt", prompt="@text steered", key="s1")
    assert (again["turn_id"], again["delivery"]) == (turn, "duplicate")
    assert len(session.events("turn_completed")) == 1
    assert session.ask("@text on")["text"] == "on"


def test_one_that_comes_too_late_for_the_turn_gets_a_turn_of_its_own_and_its_key_follows(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    first = session.prompt("working\n@wait-file go")
    session.await_event("content_delta")
    said = steer(session, "@text steered", key="s1")
    assert said["turn_id"] == first
    queued = session.prompt("@text queued")
    (daemon.cwd / "go").touch()
    own = session.await_event("turn_started", 2)
    assert (own["key"], own["prompt_ids"], own["origin"]) == ("s1", [said["prompt_id"]], "prompt")
    assert session.end_of(own["turn_id"])["text"] == "steered"
    assert session.end_of(first)["prompt_ids"] != session.end_of(own["turn_id"])["prompt_ids"]
    assert session.call("prompt", prompt="@text steered", key="s1")["turn_id"] == own["turn_id"]
    assert session.end_of(queued)["text"] == "queued"
    assert [e["turn_id"] for e in session.events("turn_started")] == [first, own["turn_id"], queued]


@pytest.mark.parametrize("at_tool", [True, False])
def test_who_waits_for_a_steered_prompt_gets_the_end_of_the_turn_that_took_it(
    serve: Callable[..., Harness], at_tool: bool
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    if at_tool:
        turn = at_a_tool(session)
    else:
        turn = session.prompt("working\n@wait-file go")
        session.await_event("content_delta")
    before = taken_in(session)
    with daemon.wire() as wire:
        waits = wire.post("session/prompt", session_id=session.id, prompt="@text steered", when_busy="steer", wait=True)
        session.await_event("prompt_accepted", delivery="steered")
        until(lambda: not at_tool or taken_in(session) > before)
        (daemon.cwd / "go").touch()
        result = wire.answer(waits)
    assert result["outcome"] == "completed"
    assert (result["turn_id"] == turn) == at_tool
    if not at_tool:
        assert result["text"] == "steered"


def test_an_interrupt_takes_the_steered_prompts_of_its_turn_along(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    turn = session.prompt("working\n@stall")
    session.await_event("content_delta")
    steer(session, "@text steered")
    assert session.call("interrupt") == {"turn_id": turn, "outcome": "interrupted"}
    session.await_event("notice", code="steer_dropped")
    assert session.ask("@text on")["text"] == "on"
    assert len(session.events("turn_started")) == 2


def test_what_a_process_had_not_begun_when_it_left_is_queued_and_given_to_another(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo={**LIVE, "command": [sys.executable, str(AGENT)]})
    session = daemon.new()
    first = session.prompt("one and another")
    session.await_event("session_init")
    said = steer(session, "two", key="s1")
    assert said["turn_id"] == first
    own = session.await_event("turn_started", 2)
    assert session.end_of(first)["text"] == "one and another"
    assert (own["key"], session.end_of(own["turn_id"])["text"]) == ("s1", "two")
    assert session.call("prompt", prompt="two", key="s1")["turn_id"] == own["turn_id"]
    assert len(session.events("turn_completed")) == 2 and len(session.events("process_started")) == 2


def test_a_steered_prompts_own_turn_that_dies_is_not_repeated(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.prompt("working\n@wait-file go")
    session.await_event("content_delta")
    pid = session.cli()
    steer(session, "@wait-file never", key="s1")
    (daemon.cwd / "go").touch()
    session.await_event("turn_started", 2)
    os.kill(pid, signal.SIGKILL)
    session.await_event("turn_completed", 2)
    assert [e["outcome"] for e in session.events("turn_completed")] == ["completed", "failed"]
    assert session.ask("@text on")["text"] == "on"
    assert len(session.events("turn_started")) == 3


def test_a_turn_whose_process_is_just_being_started_can_be_steered(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.prompt("@bash while ! [ -e go ]; do sleep 0.05; done\nthe end")
    said = steer(session, "@text steered")  # queued or steered: it never is refused
    assert said["delivery"] in ("steered", "queued", "delivered")
    (daemon.cwd / "go").touch()
    until(lambda: session.get()["phase"] == "resting" and not session.get()["queue"])
    taken = [prompt for event in session.events("turn_completed") for prompt in event["prompt_ids"]]
    assert len(taken) == len(set(taken)) == 2


def test_a_turn_that_dies_takes_its_steered_prompt_along_and_says_so(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    turn = at_a_tool(session)
    steer(session, "@text steered")
    os.kill(session.cli(), signal.SIGKILL)
    assert session.end_of(turn)["outcome"] == "failed"
    session.await_event("notice", code="steer_dropped")
    assert session.ask("@text on")["text"] == "on"


@pytest.mark.fault(1)
@pytest.mark.parametrize("point", ["say.journaled", "keeper.stdin.before", "keeper.stdin.after"])
def test_kill_9_around_a_steered_prompt_loses_none_and_doubles_none(serve: Callable[..., Harness], point: str) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    turn = at_a_tool(session)
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.start()
    with daemon.wire() as wire:
        wire.post("session/prompt", session_id=session.id, prompt="@text steered", when_busy="steer", key="s")
        assert daemon.process is not None
        daemon.process.wait(30)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    again = session.call("prompt", prompt="@text steered", when_busy="steer", key="s")
    assert (again["turn_id"], again["delivery"]) == (turn, "duplicate")
    (daemon.cwd / "go").touch()
    assert len(session.end_of(turn)["prompt_ids"]) == 2
    until(lambda: session.get()["phase"] == "resting")
    assert len(session.events("turn_completed")) == 1


def test_a_session_with_a_process_for_each_turn_cannot_be_steered(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("@stall")
    session.await_event("session_init")
    with pytest.raises(ClisupError) as refused:
        steer(session, "hello")
    assert refused.value.kind == "unsupported"


def test_steering_an_idle_session_is_an_ordinary_prompt(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    assert steer(session, "@text hello")["delivery"] == "delivered"
    assert session.end_of("t1")["text"] == "hello"


# -- what is changed or asked between prompts


def test_the_model_of_a_live_process_is_changed_at_once_and_stays(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    assert session.call("set_model", model="demo-2") == {"applied": "now", "value": "demo-2"}
    session.ask("hello")
    assert session.events("session_init")[-1]["model"] == "demo-2"
    daemon.restart()
    session.ask("hello")
    assert len(session.events("process_started")) == 1  # the fingerprint knows of the change, too
    os.kill(session.events("process_started")[-1]["pid"], signal.SIGKILL)
    session.ask("hello")
    assert session.events("session_init")[-1]["model"] == "demo-2"
    assert session.events("notice", code="model_set")


def test_a_one_shot_session_takes_another_model_and_mode_from_its_next_turn_on(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello")
    assert session.call("set_model", model="demo-2")["applied"] == "next_turn"
    assert session.call("set_permission_mode", permission_mode="acceptEdits")["applied"] == "next_turn"
    session.ask("hello")
    init = session.events("session_init")[-1]
    assert (init["model"], init["permission_mode"]) == ("demo-2", "acceptEdits")


def test_the_permission_mode_is_checked_and_changed(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    with pytest.raises(ClisupError) as refused:
        session.call("set_permission_mode", permission_mode="whatever")
    assert refused.value.kind == "invalid_params"
    with pytest.raises(ClisupError) as told:
        session.call("set_permission_mode", permission_mode="bypassPermissions")
    assert told.value.kind == "invalid_params" and "the CLI refused" in str(told.value)
    assert session.call("set_permission_mode", permission_mode="acceptEdits")["applied"] == "now"
    session.ask("hello")
    assert session.events("session_init")[-1]["permission_mode"] == "acceptEdits"
    assert len(session.events("process_started")) == 1


def test_a_live_process_tells_how_full_its_context_is(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    with pytest.raises(ClisupError) as refused:
        session.call("context_usage")
    assert refused.value.kind == "unsupported"
    session.ask("hello")
    usage = session.call("context_usage")
    assert 0 < usage["total_tokens"] <= usage["max_tokens"]
    assert all(category["name"] for category in usage["categories"])


@pytest.mark.parametrize("what", ["context_usage", "compact"])
def test_a_control_that_a_backend_lacks_is_refused_with_those_that_it_has(
    serve: Callable[..., Harness], what: str
) -> None:
    daemon = serve(raw='[backends.agent]\nkind = "acp"\ncommand = ["true"]\n')
    with pytest.raises(ClisupError) as refused:
        daemon.new(backend="agent").call(what)
    assert refused.value.kind == "unsupported" and f"does not support {what}" in refused.value.message
    assert (
        "its controls: model, permission_mode" in refused.value.hint and "clisup backends --json" in refused.value.hint
    )


@pytest.mark.parametrize("mode", ["live"])
def test_compaction_is_a_turn_like_any_other(serve: Callable[..., Harness], mode: str) -> None:
    daemon = serve()
    session = daemon.new(mode=mode)
    session.ask("hello")
    result = session.call("compact", wait=True, key="c")
    assert (result["turn_id"], result["outcome"]) == ("t2", "completed")
    assert session.events("status", status="compact_boundary", turn_id="t2")
    assert session.call("compact", key="c")["delivery"] == "duplicate"
    assert session.ask("@text on")["text"] == "on"
    assert len(session.events("process_started")) == 1


@pytest.mark.parametrize("nth", range(7, 11))
def test_a_kill_at_the_end_of_a_process_leaves_no_steered_prompt_without_a_fate(
    serve: Callable[..., Harness], nth: int
) -> None:
    """Also between the exit, which is journaled, and the prompt's place in the queue."""
    daemon = serve(start=False, demo={**LIVE, "command": [sys.executable, str(AGENT)]})
    daemon.env["CLISUP_FAILPOINTS"] = f"journal.after=kill@{nth}"
    daemon.start()
    session = daemon.new()
    with suppress(Hangup, OSError, ClisupError):
        session.prompt("one and another", key="k1")
        session.await_event("session_init")
        steer(session, "two", key="s1")
        session.await_event("process_exited")
    daemon.kill()
    daemon.env.pop("CLISUP_FAILPOINTS")
    daemon.start()
    if session.events("prompt_accepted", delivery="steered"):
        until(lambda: "two" in texts(session) or session.events("notice", code="steer_dropped"))
    until(lambda: session.get()["state"] == "idle")


def texts(session: SessionProbe) -> list[str]:
    return [str(end.get("text")) for end in session.events("turn_completed")]


def test_to_close_a_session_ends_the_turn_that_its_cli_begins_by_itself_meanwhile(
    serve: Callable[..., Harness],
) -> None:
    """It says nothing for ten minutes: to wait for its end would be a close that takes so long."""
    daemon = serve(demo={**LIVE, "command": [sys.executable, str(AGENT)]})
    session = daemon.new()
    session.prompt("one and another on its own")
    session.await_event("session_init")
    steer(session, "two", key="s1")
    session.end_of("t1")
    session.call("close")
    assert session.get()["state"] == "closed"
    assert {end["outcome"] for end in session.events("turn_completed")[1:]} <= {"interrupted"}


def test_a_mode_that_the_cli_takes_up_is_journaled_though_its_client_has_gone(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    session.ask("hello")
    pid = session.events("process_started")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)  # it answers later
    with daemon.wire() as wire:
        wire.post("session/set_permission_mode", session_id=session.id, permission_mode="acceptEdits")
        until(lambda: session.events("notice", code="asked"))
    os.kill(pid, signal.SIGCONT)
    session.await_event("notice", code="permission_mode_set")
    session.ask("again")
    os.kill(pid, signal.SIGKILL)
    session.ask("in a new process")
    modes = [event["permission_mode"] for event in session.events("session_init")]
    assert modes == ["default", "acceptEdits", "acceptEdits"]


def test_so_many_changes_may_wait_for_a_cli_that_does_not_answer(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    session.ask("hello")
    pid = session.events("process_started")[0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    with daemon.wire() as wire:
        for _ in range(MAX_OPEN):
            wire.post("session/set_model", session_id=session.id, model="demo-2")
        until(lambda: len(session.events("notice", code="asked")) == MAX_OPEN)
        with pytest.raises(ClisupError, match="has not answered 8 requests before this one"):
            session.call("set_model", model="demo-2")
        os.kill(pid, signal.SIGCONT)
    until(lambda: len(session.events("notice", code="model_set")) == MAX_OPEN)


def test_a_setting_whose_process_dies_before_it_answers_is_for_the_next_turn(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    session.ask("hello")
    pid = session.get()["pid"]
    os.kill(pid, signal.SIGSTOP)
    with daemon.wire() as wire:
        asked = wire.post("session/set_model", session_id=session.id, model="demo-2")
        session.await_event("notice", code="asked")
        os.kill(pid, signal.SIGKILL)
        assert wire.answer(asked) == {"applied": "next_turn", "value": "demo-2"}
    session.ask("again")
    assert session.events("session_init")[-1]["model"] == "demo-2"

"""Live sessions: one process for many turns, and what becomes of it between them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError

LIVE = {"mode": "live"}
PROCESS = ("process_started", "process_exited")


def pids(session: SessionProbe) -> list[int]:
    """The processes that the session has had, in order."""
    return [event["pid"] for event in session.events("process_started")]


def shape(session: SessionProbe) -> list[tuple[Any, ...]]:
    """The session's events without what differs from run to run."""
    events = (event for event in session.events() if event["type"] not in PROCESS)
    return [(event["type"], event.get("turn_id"), event.get("text"), event.get("outcome")) for event in events]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_one_process_serves_many_turns_with_the_events_of_one_process_for_each(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    script = ["one", "@think hm\n@bash echo two", "@count", "@usage 7 9\n@cost 0.5\nfour"]
    sessions = [daemon.new(mode=mode) for mode in ("one-shot", "live")]
    for prompt in script:
        assert len({str(session.ask(prompt)["text"]) for session in sessions}) == 1
    one_shot, live = sessions
    assert shape(one_shot) == shape(live)
    assert (len(pids(one_shot)), len(pids(live))) == (4, 1)
    assert one_shot.get()["cost_usd"] == live.get()["cost_usd"]
    assert one_shot.get()["tokens"] == live.get()["tokens"]
    seen = live.get()
    assert (seen["state"], seen["phase"], seen["live"], seen["pid"]) == ("idle", "resting", True, pids(live)[0])
    assert seen["next_timer"]["phase"] == "resting"
    ids = [
        (s["prompt_ids"], e["prompt_ids"])
        for s, e in zip(live.events("turn_started"), live.events("turn_completed"), strict=True)
    ]
    assert all(started == ended and len(started) == 1 for started, ended in ids)


def test_closing_the_session_lets_its_process_go(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    session.call("close")
    (exited,) = session.events("process_exited")
    assert (exited["exit_code"], exited["ended_by"], exited["survivors"]) == (0, "client", [])
    assert session.events()[-1]["code"] == "closed"
    assert not alive(pids(session)[0])


def test_an_interrupt_ends_the_turn_and_keeps_the_process_and_the_partial_text(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    turn = session.prompt("partial\n@stall")
    session.await_event("content_delta", text="partial")
    assert session.call("interrupt") == {"turn_id": turn, "outcome": "interrupted"}
    assert session.ask("@text and on")["text"] == "and on"
    assert len(pids(session)) == 1 and not session.events("process_exited")
    texts = [block["text"] for e in session.events("message", turn_id=turn) for block in e["blocks"]]
    assert texts == ["partial"]
    assert session.end_of(turn)["error"]["kind"] == "cancelled"


def test_an_interrupted_tool_is_gone_and_the_process_is_not(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.prompt(f"@bash echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 60")
    until((tmp_path / "pid").exists)
    assert session.call("interrupt")["outcome"] == "interrupted"
    assert not alive(int((tmp_path / "pid").read_text()))
    assert session.ask("@text on")["text"] == "on"
    assert len(pids(session)) == 1


def test_a_cli_that_does_not_answer_an_interrupt_meets_the_ladder(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, timeouts={"int_grace": 0.3, "term_grace": 0.3})
    session = daemon.new()
    session.prompt("deaf\n@stall")
    session.await_event("content_delta", text="deaf")
    os.kill(session.cli(), signal.SIGSTOP)
    assert session.call("interrupt")["outcome"] == "interrupted"
    assert session.events("process_exited")[0]["ended_by"] == "client"
    assert session.ask("@count")["text"] == "turn 2"
    assert len(pids(session)) == 2


def test_a_kill_ends_the_whole_tree(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.prompt("here\n@stall")
    session.await_event("content_delta")
    assert session.call("interrupt", mode="kill")["outcome"] == "interrupted"
    assert not alive(pids(session)[0])
    assert session.ask("again")["outcome"] == "completed"


def test_a_stalled_turn_is_ended_by_the_watchdog_and_the_process_serves_the_next(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, timeouts={"model_idle": 0.5})
    session = daemon.new()
    end = session.ask("then nothing\n@stall")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert session.ask("on")["outcome"] == "completed"
    assert len(pids(session)) == 1


def test_a_failed_turn_leaves_the_process_for_the_next(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    assert session.ask("@error overloaded")["error"]["kind"] == "overloaded"
    assert session.ask("better")["outcome"] == "completed"
    assert len(pids(session)) == 1


# -- when the process is gone


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_gone_between_two_turns_is_replaced_unseen(
    serve: Callable[..., Harness], number: int
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("the first prompt")
    os.kill(session.cli(), number)
    assert session.ask("@recall")["text"] == "The first prompt was: the first prompt"
    assert [event["outcome"] for event in session.events("turn_completed")] == ["completed", "completed"]
    assert len(pids(session)) == 2
    assert session.events("process_exited")[0].get("turn_id") in (None, "t2")


def test_a_prompt_that_a_dying_process_never_took_is_given_to_another(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    for n in range(8):  # the moment between the prompt and the death is not ours to choose
        session.ask(f"turn {n}")
        pid = session.events("process_started")[-1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        turn = session.prompt("@bash echo x >> ran\ntaken")
        session.await_event("turn_started", turn_id=turn)
        os.kill(pid, signal.SIGKILL)
        assert session.end_of(turn)["outcome"] == "completed", session.end_of(turn)
        assert session.events("notice", code="prompt_not_taken", turn_id=turn)
    assert (daemon.cwd / "ran").read_text() == "x\n" * 8


def test_a_process_that_dies_in_mid_turn_fails_the_turn_and_no_more(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    assert session.ask("half\n@crash")["error"]["kind"] == "crashed"
    assert session.ask("@count")["text"] == "turn 3"


# -- rest, and its end


def test_a_process_without_a_turn_is_let_go_after_a_while(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, live={"idle_s": 0.3})
    session = daemon.new()
    session.ask("the first prompt")
    exited = session.await_event("process_exited")
    assert (exited["ended_by"], exited["exit_code"], exited.get("turn_id")) == ("idle", 0, None)
    until(lambda: not session.get()["live"])
    assert session.ask("@recall")["text"].endswith("the first prompt")
    assert not session.events("watchdog")


def test_background_work_keeps_a_process_from_being_let_go(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, live={"idle_s": 0.2})
    session = daemon.new()
    assert session.ask("@background 1 follow-up\nanswered")["text"] == "answered"
    assert session.await_event("turn_completed", 2)["text"] == "follow-up"
    assert [event["origin"] for event in session.events("turn_started")] == ["prompt", "backend"]
    assert session.await_event("process_exited")["ended_by"] == "idle"


def test_the_oldest_idle_process_makes_room_for_a_new_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"max_live": 2})
    sessions = [daemon.new() for _ in range(4)]
    for session in sessions:
        session.ask("hello")
    assert [len(session.events("process_exited")) for session in sessions] == [1, 1, 0, 0]
    assert sessions[0].events("process_exited")[0]["ended_by"] == "room"
    sessions[2].ask("again")  # now it is the youngest
    sessions[0].ask("again")
    assert [len(session.events("process_exited")) for session in sessions] == [1, 1, 0, 1]


def test_background_work_is_not_ended_to_make_room(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"max_live": 1})
    session, other = daemon.new(), daemon.new()
    session.ask("@background 1.5 follow-up\nanswered")
    other.ask("hello")
    assert session.await_event("turn_completed", 2)["text"] == "follow-up"
    until(lambda: len(session.events("process_exited")) + len(other.events("process_exited")) == 1)


def test_an_interrupt_in_the_first_moment_of_a_process_is_heard(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    turn = session.prompt("@stall")
    session.await_event("turn_started")
    assert session.call("interrupt")["turn_id"] == turn
    assert session.ask("@text on")["text"] == "on"


def test_with_no_room_at_all_each_process_serves_one_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, daemon={"max_live": 0})
    session = daemon.new()
    assert [session.ask(prompt)["text"] for prompt in ("@text one", "@count")] == ["one", "turn 2"]
    until(lambda: len(session.events("process_exited")) == 2)


def test_a_process_that_has_said_very_much_is_renewed(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE, live={"spool_bytes": 100_000})
    session = daemon.new()
    session.ask("@stream 1000 100")
    assert session.await_event("process_exited")["ended_by"] == "renewed"
    assert session.ask("on")["outcome"] == "completed"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"env": {"DEMO_EXTRA": "1"}}, "the environment"),
        ({"env": {"DEMO_TOKEN": "s3cret"}}, "a credential"),
        ({"args": ["--verbose"]}, "an argument"),
    ],
)
def test_what_a_process_cannot_take_up_needs_another_and_the_event_says_why(
    serve: Callable[..., Harness], change: dict[str, Any], word: str
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    daemon.configure(demo={**LIVE, **change})
    daemon.restart()
    session.ask("hello again")
    assert len(pids(session)) == 2
    (notice,) = session.events("notice", code="process_restarted")
    assert notice["message"].endswith(f"another value for: {word}")
    assert session.events("process_exited")[0]["ended_by"] == "changed"


# -- the daemon's own life


@pytest.mark.fault(1)
def test_a_resting_process_survives_the_daemon(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    for n in range(3):
        daemon.restart()
        until(lambda: session.get()["live"])
        assert session.get()["phase"] == "resting"
        assert session.ask(f"@text hello {n}")["text"] == f"hello {n}"
    assert len(pids(session)) == 1


@pytest.mark.fault(1)
@pytest.mark.parametrize("point", ["say.journaled", "keeper.stdin.before", "keeper.stdin.after", "journal.before"])
@pytest.mark.parametrize("nth", [1, 2])
def test_kill_9_around_a_prompt_to_a_live_process_loses_none_and_doubles_none(
    serve: Callable[..., Harness], point: str, nth: int
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill@{nth}"
    daemon.start()
    prompts = [("@bash echo a >> ran\nyes", "a"), ("@bash echo b >> ran\nno", "b")]
    with daemon.wire() as wire:
        for text, key in prompts:  # side by side: either may be the first
            wire.post("session/prompt", session_id=session.id, prompt=text, key=key)
        assert daemon.process is not None
        daemon.process.wait(30)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    assert [session.ask(text, key=key)["text"] for text, key in prompts] == ["yes", "no"]
    assert sorted((daemon.cwd / "ran").read_text().split()) == ["a", "b"]
    assert len(session.events("turn_completed")) == 3
    assert len(pids(session)) == 1


@pytest.mark.fault(1)
@pytest.mark.parametrize("seed", range(2))
def test_random_kills_of_the_daemon_lose_and_double_nothing_of_live_turns(
    serve: Callable[..., Harness], seed: int
) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    chance = random.Random(seed)
    for n in range(6):
        session.prompt(f"@stream 50 20 0.002\n@bash echo {n} >> ran\n@stream 20 20\nend {n}", key=f"k{n}")
    while len(session.events("turn_completed")) < 6:
        time.sleep(chance.uniform(0, 0.2))  # random moments are the point
        daemon.restart()
    assert [event["text"].splitlines()[-1] for event in session.events("turn_completed")] == [
        f"end {n}" for n in range(6)
    ]
    assert (daemon.cwd / "ran").read_text().split() == [str(n) for n in range(6)]
    assert session.chunks() == [*range(50), *range(20)] * 6
    assert len(pids(session)) == 1


@pytest.mark.fault(1)
def test_kills_around_the_birth_of_a_follow_up_lose_neither_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    sessions = [daemon.new() for _ in range(5)]
    for n, session in enumerate(sessions):
        session.prompt(f"@background {0.4 + n * 0.2} follow-up\nanswered")
    chance = random.Random(5)
    while any(len(session.events("turn_completed")) < 2 for session in sessions):
        time.sleep(chance.uniform(0, 0.1))
        daemon.restart()
    for session in sessions:
        assert [e["text"] for e in session.events("turn_completed")] == ["answered", "follow-up"]
        assert [e["origin"] for e in session.events("turn_started")] == ["prompt", "backend"]


def test_a_stop_of_the_daemon_lets_resting_processes_go(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    pid = pids(session)[0]
    assert daemon.stop() == 0
    assert not alive(pid)
    daemon.start()
    assert session.events("process_exited")[0]["ended_by"] == "operator"
    assert session.ask("@count")["text"] == "turn 2"


def test_a_restart_in_place_keeps_the_process(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("hello")
    before = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(before)
    assert session.ask("@count")["text"] == "turn 2"
    assert len(pids(session)) == 1


# -- follow-ups, and the mode


def test_a_prompt_during_background_work_is_a_turn_of_its_own(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    session.ask("@background 0.8 follow-up\nanswered")
    assert session.ask("@text meanwhile")["text"] == "meanwhile"
    session.await_event("turn_completed", 3)
    assert [event["text"] for event in session.events("turn_completed")] == ["answered", "meanwhile", "follow-up"]


def test_prompts_that_race_with_follow_ups_all_get_their_answers(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    for n in range(6):
        session.ask(f"@background 0.{n + 1} follow-up {n}\nanswered {n}")
        time.sleep(0.08 * n)  # somewhere around the birth of the follow-up
        assert session.ask(f"@text prompt {n}")["text"] == f"prompt {n}"
    until(lambda: session.get()["phase"] == "resting")
    ends = [event["text"] for event in session.events("turn_completed")]
    assert [text for text in ends if text.startswith("prompt")] == [f"prompt {n}" for n in range(6)]
    assert len(pids(session)) == 1


def test_the_session_chooses_its_mode_over_the_backends(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new(mode="one-shot")
    session.ask("hello")
    assert session.await_event("process_exited")["ended_by"] == "cli"
    assert not session.get()["live"]


def test_a_backend_that_has_no_live_mode_says_so(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[backends.agent]\nkind = "codex-exec"\ncommand = ["true"]\n')
    with pytest.raises(ClisupError) as refused:
        daemon.new(backend="agent", mode="live")
    assert refused.value.kind == "unsupported"


def test_queued_prompts_run_one_after_the_other_and_can_be_taken_back(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo=LIVE)
    session = daemon.new()
    first = session.prompt("@wait-file go\none")
    session.await_event("turn_started")
    second, third = session.prompt("@text two"), session.prompt("@text three")
    assert [entry["turn_id"] for entry in session.get()["queue"]] == [second, third]
    assert session.call("interrupt", turn_id=second)["outcome"] == "interrupted"
    (daemon.cwd / "go").touch()
    assert [session.end_of(turn)["text"] for turn in (first, third)] == ["one", "three"]


def test_a_message_to_the_cli_that_a_kill_left_behind_goes_when_the_process_ends(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    session.ask("hello")
    left = session.dir / "runs" / "1" / "said" / "left"
    left.parent.mkdir(exist_ok=True)
    left.write_text("words that no journal knows")
    os.kill(session.get()["pid"], signal.SIGKILL)
    until(lambda: not left.exists())

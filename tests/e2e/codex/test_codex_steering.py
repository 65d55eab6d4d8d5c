"""Prompts into a running turn of the real codex: taken by the turn, or the next turn's prompt, and never lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.fake_api import call, events, message, prompts, reasoning, said
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import SLOW, Scenario, run, say
from tests.e2e.codex.test_approvals import ESCALATED, asked
from tests.e2e.lab import poll
from tests.e2e.scenarios import Body, Pause, Reply, Respond, Stall, in_turn

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
POINTS = ("say.journaled", "keeper.stdin.before", "keeper.stdin.after")


@pytest.fixture
def live(lab: Lab) -> Callable[..., tuple[CodexLab, str]]:
    """A live session, for a model that answers like this."""

    def start(*replies: Respond) -> tuple[CodexLab, str]:
        here = lab(Scenario("steered", replies[0] if len(replies) == 1 else in_turn(*replies)))
        return here, here.open(mode="live")

    return start


def gated(*replies: Respond, gates: tuple[str, ...] = ("go",)) -> Respond:
    """The model is at a tool until each of these files is there, and then gives these answers.

    A command that runs for long is given back to the model, which waits for the file again.
    """

    def respond(body: Body, n: int) -> Reply:
        outputs = str([entry["output"] for entry in body["input"] if entry.get("type") == "function_call_output"])
        if (gate := next((gate for gate in gates if f"passed {gate}" not in outputs), None)) is None:
            return replies[sum(entry.get("role") == "assistant" for entry in body["input"])](body, n)
        command = f"while ! [ -e {gate} ]; do sleep 0.05; done; echo passed {gate}"
        return said(n, call("exec_command", cmd=command, yield_time_ms=30_000))

    return respond


def steer(here: CodexLab, session: str, prompt: Any = "And this.", **params: Any) -> dict[str, Any]:
    with here.client() as client:
        return dict(client.call("session/prompt", session_id=session, prompt=prompt, when_busy="steer", **params))


def at_a_tool(here: CodexLab, session: str) -> str:
    turn = here.prompt(session, "First.")
    here.wait_for(session, "tool_use")
    return turn


def stuck(body: Body, n: int) -> Reply:
    """The model stops in the middle of a message."""
    return [*events(n, reasoning("Let me think."), message("half an ", "answer"))[:-2], Stall()]


def held(body: Body, n: int) -> Reply:
    """The model answers once the fake is released."""
    return [Pause(60), *said(n, message("summary"))]


def shown(here: CodexLab) -> list[str]:
    """What the users said in the last request to the model."""
    return prompts(here.api.main_requests[-1].body)


def took(here: CodexLab, session: str) -> dict[str, list[str]]:
    """The steered prompts and those after them that each turn has taken."""
    return {end["turn_id"]: end["prompt_ids"][1:] for end in here.events(session, "turn_completed")}


def test_a_turn_at_a_tool_takes_a_steered_prompt(live: Callable[..., tuple[CodexLab, str]]) -> None:
    here, session = live(gated(say("Both done."), say("Next.")))
    turn = at_a_tool(here, session)
    first, second = steer(here, session, key="s"), steer(here, session, "And that.")
    assert (first["turn_id"], first["delivery"]) == (turn, "steered")
    (here.cwd / "go").touch()
    assert here.wait_for(session, "turn_completed")["text"] == "Both done."
    assert took(here, session) == {turn: [first["prompt_id"], second["prompt_id"]]}
    assert shown(here) == ["First.", "And this.", "And that."]
    again = steer(here, session, key="s")
    assert (again["turn_id"], again["delivery"]) == (turn, "duplicate")
    here.turn("Next.", session=session)
    assert shown(here) == ["First.", "And this.", "And that.", "Next."] and len(here.pids(session)) == 1


def test_a_turn_that_writes_begins_its_answer_anew(live: Callable[..., tuple[CodexLab, str]]) -> None:
    here, session = live(stuck, say("The answer."))
    turn = here.prompt(session, "First.")
    poll(lambda: any(e["kind"] == "text" for e in here.events(session, "content_delta")), "the beginning of an answer")
    taken = steer(here, session)
    end = here.wait_for(session, "turn_completed")
    assert (end["text"], end["prompt_ids"][1:]) == ("The answer.", [taken["prompt_id"]])
    assert shown(here) == ["First.", "And this."] and [turn] == list(took(here, session))
    (retracted,) = here.events(session, "retracted")
    (cut, whole) = [event["message_id"] for event in here.events(session, "message_start")][1:]
    assert (retracted["message_id"], retracted["reason"]) == (cut, "a steered prompt replaced it") and cut != whole


def test_a_turn_that_waits_for_an_approval_takes_a_steered_prompt_afterwards(
    live: Callable[..., tuple[CodexLab, str]],
) -> None:
    here, session = live(run("touch made.txt", **ESCALATED), say("Done."))
    turn = here.prompt(session, "First.")
    approval = asked(here, session)
    taken = steer(here, session)
    here.answer(session, approval, "allow")
    here.wait_for(session, "turn_completed")
    assert took(here, session) == {turn: [taken["prompt_id"]]} and shown(here) == ["First.", "And this."]


def test_a_turn_that_is_just_beginning_can_be_steered(live: Callable[..., tuple[CodexLab, str]]) -> None:
    here, session = live(gated(say("Done.")))
    here.asked_by_others = True  # codex drops an answer that it got whole, and does not count it
    turn = here.prompt(session, "First.")
    taken = steer(here, session)  # codex is only starting
    assert (taken["turn_id"], taken["delivery"]) == (turn, "steered")
    (here.cwd / "go").touch()
    here.wait_for(session, "turn_completed")
    assert took(here, session) == {turn: [taken["prompt_id"]]}


def test_an_interrupt_drops_what_the_turn_had_not_taken(live: Callable[..., tuple[CodexLab, str]]) -> None:
    here, session = live(run(SLOW, yield_time_ms=30_000), say("Next."))
    at_a_tool(here, session)
    steer(here, session)
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    here.wait_for(session, "notice", code="steer_dropped")
    assert here.turn("Go on.", session=session)["text"] == "Next."
    assert shown(here) == ["First.", "Go on."] and len(here.pids(session)) == 1


def test_a_prompt_that_a_turn_refuses_is_the_next_one(live: Callable[..., tuple[CodexLab, str]]) -> None:
    """codex steers no compaction."""
    here, session = live(say("One."), held, say("Two."), say("Three."))
    here.turn("First.", session=session)
    with here.client() as client:
        compaction = client.call("session/compact", session_id=session)["turn_id"]
    poll(lambda: len(here.api.main_requests) == 2, "the request for a summary")
    queued = here.prompt(session, "Queued.")
    late, later = steer(here, session, key="s"), steer(here, session, "And that.")
    assert {late["turn_id"], later["turn_id"]} == {compaction} and late["delivery"] == "steered"
    here.api.release.set()
    here.wait_for(session, "turn_completed", turn_id=queued)
    started = here.events(session, "turn_started")[2:]
    assert [event["prompt_preview"] for event in started] == ["And this.", "And that.", "Queued."]
    accepted = here.events(session, "prompt_accepted")[-2:]
    assert [(event["prompt_id"], event["delivery"], event["position"]) for event in accepted] == [
        (late["prompt_id"], "queued", 1),
        (later["prompt_id"], "queued", 2),
    ]
    assert steer(here, session, key="s")["turn_id"] == started[0]["turn_id"]
    assert shown(here)[-3:] == ["And this.", "And that.", "Queued."] and len(here.pids(session)) == 1


def test_who_waits_for_a_refused_prompt_gets_the_end_of_its_own_turn(
    live: Callable[..., tuple[CodexLab, str]],
) -> None:
    here, session = live(held, say("Two."))
    with here.client() as client, ThreadPoolExecutor(1) as pool:
        client.call("session/compact", session_id=session)
        poll(lambda: here.api.main_requests, "the request for a summary")
        waits = pool.submit(steer, here, session, wait=True)
        poll(lambda: b"cannot steer a compact turn" in output(here, session), "codex's refusal")
        here.api.release.set()
        result = waits.result()
    assert (result["turn_id"], result["text"]) == ("t2", "Two.")


@contextmanager
def killed_at(here: CodexLab, point: str) -> Iterator[None]:
    """Another daemon, which dies of the requests in this context."""
    here.kill()
    here.daemon_env = {"CLISUP_FAILPOINTS": f"{point}=kill"}
    here.start()
    with pytest.raises(ClisupError):
        yield
    assert here.daemon is not None
    here.daemon.wait(30)
    here.daemon_env = {}


def output(here: CodexLab, session: str) -> bytes:
    """All that the session's processes have printed."""
    return b"".join(spool.read_bytes() for spool in here.state.glob(f"sessions/{session}/runs/*/out.spool"))


@pytest.mark.fault(1)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("in_time", [True, False])
def test_kill_9_around_a_steered_prompt_loses_none_and_doubles_none(
    live: Callable[..., tuple[CodexLab, str]], point: str, in_time: bool
) -> None:
    """Also if the turn ends while no daemon is there: a steer that was not sent before is refused then."""
    here, session = live(gated(say("One."), say("Two."), say("Three.")))
    turn = at_a_tool(here, session)
    with killed_at(here, point):
        steer(here, session, key="s")
    if not in_time:
        (here.cwd / "go").touch()
        poll(lambda: b'"turn/completed"' in output(here, session), "the end of the turn")
    here.start()
    again = steer(here, session, key="s")
    assert again["delivery"] == "duplicate"
    poll(lambda: b'"id":"steer-' in output(here, session), "codex's answer")
    (here.cwd / "go").touch()
    here.wait_for(session, "turn_completed")
    with here.client() as client:
        taken = client.call("session/prompt", session_id=session, prompt="And this.", key="s", wait=True)
    assert taken["outcome"] == "completed"
    sent = point == "keeper.stdin.after" or in_time
    assert list(took(here, session)) == ([turn] if sent else [turn, "t2"])
    assert shown(here) == ["First.", "And this."] and len(here.pids(session)) == 1
    here.turn("Last.", session=session)
    assert shown(here) == ["First.", "And this.", "Last."]


@pytest.mark.fault(1)
def test_kill_9_after_codex_took_the_steered_prompt_repeats_nothing(
    live: Callable[..., tuple[CodexLab, str]],
) -> None:
    here, session = live(gated(say("Done."), say("Next."), gates=("go", "on")))
    turn = at_a_tool(here, session)
    taken = steer(here, session)
    poll(lambda: b'"id":"steer-' in output(here, session), "codex's answer")
    here.kill()
    here.start()  # codex has accepted the prompt, and the turn has not taken it yet
    (here.cwd / "go").touch()
    poll(lambda: shown(here) == ["First.", "And this."], "the steered prompt at the model")
    here.kill()
    here.start()  # the turn has taken the prompt
    (here.cwd / "on").touch()
    here.wait_for(session, "turn_completed")
    assert took(here, session) == {turn: [taken["prompt_id"]]}
    here.turn("Last.", session=session)
    assert shown(here) == ["First.", "And this.", "Last."] and len(here.pids(session)) == 1

"""Live sessions of the real claude: one process, many turns, and everything that is said to it meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dialogues import DIALOGUES
from tests.e2e.lab import ClaudeLab, poll
from tests.e2e.scenarios import (
    Respond,
    Scenario,
    Stall,
    bash,
    in_turn,
    partial,
    prompts,
    remember,
    say,
    ticks,
    use,
)

LIVE = 'mode = "live"'
BYPASS = {"permission_mode": "bypassPermissions"}
pytestmark = pytest.mark.e2e


@pytest.fixture
def live(lab: Callable[..., ClaudeLab]) -> Callable[..., ClaudeLab]:
    """A lab whose sessions are live, for a model that answers like this."""
    return lambda *replies, **options: lab(Scenario("live", in_turn(*replies)), config=LIVE, **options)


def pids(here: ClaudeLab, session: str) -> list[int]:
    return [event["pid"] for event in here.events(session, "process_started")]


def ends(here: ClaudeLab, session: str) -> list[str]:
    return [event["text"] for event in here.events(session, "turn_completed")]


def last_prompts(here: ClaudeLab) -> list[str]:
    """What the users said in the last request to the model."""
    return prompts(here.api.main_requests[-1].body)


def steer(here: ClaudeLab, session: str, prompt: str) -> dict[str, Any]:
    with here.client() as client:
        return dict(client.call("session/prompt", session_id=session, prompt=prompt, when_busy="steer"))


def test_many_turns_of_one_process_with_the_usage_and_the_cost_of_each(live: Callable[..., ClaudeLab]) -> None:
    here = live(remember)
    session = here.open()
    turns = [here.turn(f"Prompt {n}.", session=session) for n in range(3)]
    assert all(turn["text"] == "You first said: Prompt 0." for turn in turns)
    assert len(pids(here, session)) == 1
    assert [turn["usage"]["input_tokens"] for turn in turns] == [1000, 1001, 1002]
    assert max(turn["cost_usd"] for turn in turns) < 2 * min(turn["cost_usd"] for turn in turns)
    with here.client() as client:
        client.call("session/close", session_id=session)
    (exited,) = here.events(session, "process_exited")
    assert (exited["exit_code"], exited["ended_by"]) == (0, "client")


def test_a_turn_of_a_live_process_costs_little_beside_the_model(lab: Callable[..., ClaudeLab]) -> None:
    lab("text").prove_that_live_is_cheap()


def test_an_interrupt_is_answered_at_once_and_the_process_goes_on(live: Callable[..., ClaudeLab]) -> None:
    here = live(partial(Stall()), say("Next."))
    session = here.open()
    turn = here.prompt(session)
    here.wait_for(session, "content_delta")
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session) == {"turn_id": turn, "outcome": "interrupted"}
    kept = [b["text"] for e in here.events(session, "message") for b in e["blocks"] if b["kind"] == "text"]
    assert kept == ["The answer is"]
    assert here.turn("Go on.", session=session)["text"] == "Next."
    assert "[Request interrupted by user]\n" in last_prompts(here)
    assert len(pids(here, session)) == 1


def test_an_interrupted_tool_is_killed_and_the_process_is_not(live: Callable[..., ClaudeLab]) -> None:
    here = live(use(bash("t1", f"echo $$ > pid; {ticks(60)}")), say("Next."))
    session = here.open(**BYPASS)
    here.prompt(session)
    pid = int(poll(lambda: (here.cwd / "pid").exists() and (here.cwd / "pid").read_text(), "the tool's start"))
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    poll(lambda: not Path(f"/proc/{pid}").exists(), "the tool's end")
    assert here.turn("Go on.", session=session)["text"] == "Next."
    assert len(pids(here, session)) == 1


def test_a_prompt_steered_into_a_tool_is_taken_by_the_turn(live: Callable[..., ClaudeLab]) -> None:
    here = live(use(bash("t1", "while ! [ -e go ]; do sleep 0.1; done")), say("Both done."))
    session = here.open(**BYPASS)
    turn = here.prompt(session, "First.")
    here.wait_for(session, "tool_use")
    said = steer(here, session, "And this, please.")
    assert (said["turn_id"], said["delivery"]) == (turn, "steered")
    (here.cwd / "go").touch()
    end = here.wait_for(session, "turn_completed")
    assert end["prompt_ids"][1:] == [said["prompt_id"]]
    assert "And this, please." in str(here.api.main_requests[-1].body["messages"])
    assert len(here.events(session, "turn_started")) == 1


def test_a_prompt_steered_into_mere_text_is_a_turn_of_its_own(live: Callable[..., ClaudeLab]) -> None:
    here = live(slow("One."), say("Two."))
    session = here.open()
    first = here.prompt(session, "First.")
    here.wait_for(session, "content_delta")
    said = steer(here, session, "Second.")
    started = here.wait_for(session, "turn_started", prompt_ids=[said["prompt_id"]])
    assert started["turn_id"] != first
    here.wait_for(session, "turn_completed", turn_id=started["turn_id"])
    assert ends(here, session) == ["One.", "Two."]


def slow(text: str) -> Respond:
    """Time for whatever is said meanwhile."""
    from tests.e2e.dialogues import slowly

    return slowly(text[:1], text[1:])


def test_background_work_and_its_follow_up_are_turns_of_one_process(live: Callable[..., ClaudeLab]) -> None:
    here = live(
        use(bash("bg", ticks(2), run_in_background=True)), say("Started it."), say("Meanwhile."), say("It is over.")
    )
    session = here.open(**BYPASS)
    assert here.turn("Start it.", session=session)["text"] == "Started it."
    assert here.turn("Something else.", session=session)["text"] == "Meanwhile."
    own = here.wait_for(session, "turn_started", origin="backend")
    assert here.wait_for(session, "turn_completed", turn_id=own["turn_id"])["text"] == "It is over."
    assert len(pids(here, session)) == 1


def test_what_an_mcp_server_asks_its_user_holds_no_turn_up_where_nobody_is_there(lab: Callable[..., ClaudeLab]) -> None:
    alone = "[backends.claude.approvals]\nunattended = 'deny'\nunattended_after_s = 0.1"
    here = lab(DIALOGUES["live_elicitation"], config=f"{LIVE}\n{alone}")
    server = Path(__file__).with_name("mcp_server.py")
    servers = {"good": {"type": "stdio", "command": sys.executable, "args": [str(server)]}}
    session = here.open(mcp_config={"mcpServers": servers}, **BYPASS)
    turn = here.turn("Ask.", session=session)
    assert (turn["outcome"], turn["text"]) == ("completed", "Chosen.")
    (result,) = here.events(session, "tool_result")
    assert json.loads(result["content"]) == {"action": "decline"}
    (resolved,) = here.events(session, "approval_resolved")
    assert (resolved["tool_name"], resolved["decision"], resolved["by"]) == (
        "mcp__good__elicitation",
        "deny",
        "unattended",
    )


def test_a_tool_that_needs_a_permission_waits_for_it(live: Callable[..., ClaudeLab]) -> None:
    here = live(use(bash("t1", "mkdir made")), say("Done."), use(bash("t2", "mkdir other")), say("Well."))
    session = here.open(permission_mode="default")
    here.prompt(session, "Make it.")
    asked = here.wait_for(session, "approval_requested")
    assert (asked["tool_name"], asked["input"]["command"]) == ("Bash", "mkdir made")
    with here.client() as client:
        listed = client.call("approval/list", session_id=session)["approvals"]
        assert [entry["approval_id"] for entry in listed] == [asked["approval_id"]]
        client.call("approval/respond", approval_id=asked["approval_id"], decision="allow")
    assert here.wait_for(session, "turn_completed", turn_id="t1")["text"] == "Done."
    assert (here.cwd / "made").is_dir()
    here.prompt(session, "And another.")
    again = here.wait_for(session, "approval_requested", turn_id="t2")
    with here.client() as client:
        client.call("approval/respond", approval_id=again["approval_id"], decision="deny", message="not today")
    end = here.wait_for(session, "turn_completed", turn_id="t2")
    assert (end["outcome"], end["denied"]) == ("completed", ["Bash"])
    assert not (here.cwd / "other").exists()
    assert "not today" in str(here.api.main_requests[-1].body["messages"])


@pytest.mark.fault(1)
def test_a_question_survives_the_daemon_and_is_answered_to_the_next(live: Callable[..., ClaudeLab]) -> None:
    here = live(use(bash("t1", "mkdir made")), say("Done."))
    session = here.open(permission_mode="default")
    here.prompt(session, "Make it.")
    asked = here.wait_for(session, "approval_requested")
    here.kill()
    here.start()
    with here.client() as client:
        client.call("approval/respond", approval_id=asked["approval_id"], decision="allow")
    assert here.wait_for(session, "turn_completed")["text"] == "Done."
    assert (here.cwd / "made").is_dir()
    assert len(here.events(session, "approval_requested")) == 1


@pytest.mark.fault(1)
def test_a_live_session_survives_the_daemon_at_rest_and_at_work(live: Callable[..., ClaudeLab]) -> None:
    here = live(say("One."), use(bash("t1", f"{ticks(2)}; echo x >> ran")), say("Two."), say("Three."))
    session = here.open(**BYPASS)
    here.turn("First.", session=session)
    here.kill()
    here.start()
    here.prompt(session, "Second.")
    here.wait_for(session, "tool_use")
    here.kill()
    here.start()
    here.wait_for(session, "turn_completed", turn_id="t2")
    assert here.turn("Third.", session=session)["text"] == "Three."
    assert ends(here, session) == ["One.", "Two.", "Three."]
    assert (here.cwd / "ran").read_text() == "x\n"
    assert len(pids(here, session)) == 1


def test_a_process_that_was_killed_between_two_turns_is_replaced_and_remembers(live: Callable[..., ClaudeLab]) -> None:
    here = live(remember)
    session = here.open()
    here.turn("My name is Ada.", session=session)
    time.sleep(0.3)  # the CLI writes its transcript in batches of 100 ms: what it has not written no one can resume
    os.kill(pids(here, session)[0], signal.SIGKILL)
    assert here.turn("What did I say?", session=session)["text"] == "You first said: My name is Ada."
    assert len(pids(here, session)) == 2


def test_model_mode_context_and_compaction_of_a_live_process(live: Callable[..., ClaudeLab]) -> None:
    here = live(say("One."), say("Two."), say("<summary>All of it.</summary>"), say("Three."))
    here.asked_by_others = True  # claude tries a new model with a request that it does not count
    session = here.open()
    here.turn("First.", session=session)
    with here.client() as client:
        assert client.call("session/set_model", session_id=session, model="claude-sonnet-4-5")["applied"] == "now"
        mode = client.call("session/set_permission_mode", session_id=session, permission_mode="acceptEdits")
        assert mode == {"applied": "now", "value": "acceptEdits"}
        usage = client.call("session/context_usage", session_id=session)
        assert 0 < usage["total_tokens"] < usage["max_tokens"] and usage["categories"]
        here.turn("Second.", session=session)
        assert here.api.main_requests[-1].body["model"].startswith("claude-sonnet-4-5")
        assert here.events(session, "session_init")[-1]["permission_mode"] == "acceptEdits"
        done = client.call("session/compact", session_id=session, wait=True)
    assert done["outcome"] == "completed", done
    assert any(event["status"] == "compact_boundary" for event in here.events(session, "status"))
    assert here.turn("Third.", session=session)["outcome"] == "completed"
    assert len(pids(here, session)) == 1


def test_a_command_and_a_file_in_a_prompt_are_text_for_a_live_process_too(live: Callable[..., ClaudeLab]) -> None:
    here = live(say("One."), say("Two."))
    (here.cwd / "secret.txt").write_text("the file's own words")
    session = here.open()
    here.turn("/cost", session=session)
    here.turn("/compact and @secret.txt", session=session)
    sent = str(here.api.main_requests[-1].body["messages"])
    assert "/cost" in sent and "/compact and @secret.txt" in sent and "the file's own words" not in sent
    assert all(event["prompt_altered"] for event in here.events(session, "turn_started"))
    assert len(pids(here, session)) == 1


def test_a_failed_request_fails_the_turn_and_not_the_process(lab: Callable[..., ClaudeLab]) -> None:
    from tests.e2e.scenarios import fail

    here = lab(Scenario("live", in_turn(fail(400, "invalid_request_error", "no"), say("Better."))), config=LIVE)
    session = here.open()
    first = here.turn("First.", session=session)
    second = here.turn("Second.", session=session)
    assert second["outcome"] == "completed", (first, second)
    assert len(pids(here, session)) == 1

"""Live sessions of the real claude: one process, many turns, and everything that is said to it meanwhile."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dialogues import DIALOGUES
from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import (
    Respond,
    Scenario,
    Stall,
    bash,
    in_turn,
    partial,
    prompts,
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


def ends(here: ClaudeLab, session: str) -> list[str]:
    return [event["text"] for event in here.events(session, "turn_completed")]


def last_prompts(here: ClaudeLab) -> list[str]:
    """What the users said in the last request to the model."""
    return prompts(here.api.main_requests[-1].body)


def steer(here: ClaudeLab, session: str, prompt: str) -> dict[str, Any]:
    with here.client() as client:
        return dict(client.call("session/prompt", session_id=session, prompt=prompt, when_busy="steer"))


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
    assert len(here.pids(session)) == 1


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
    assert len(here.pids(session)) == 1


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
    assert len(here.pids(session)) == 1

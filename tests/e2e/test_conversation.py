"""Conversations with the real claude: after an edit its API gets exactly the edited messages, and the old transcript stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from clisup.llm.conversation.context import estimate_tokens, to_wire_messages
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import AgentPolicy, SubAgentDelegation, ToolInteraction
from clisup.llm.conversation.policies import (
    CompressFailedPlans,
    DropCompletedToolCalls,
    SummarizeSubAgentChatter,
    default_policies,
)
from clisup.llm.messages import Message, ThinkingBlock
from clisup.llm.models import Model, resolve
from tests.e2e.lab import ClaudeLab
from tests.e2e.scenarios import (
    Body,
    Reply,
    Scenario,
    bash,
    in_turn,
    message,
    say,
    text,
    thinking,
    use,
    with_async_agents,
    with_subagent,
)
from tests.e2e.test_seeding import prompted, sent, transcript, vanilla

pytestmark = pytest.mark.e2e
BOUND_S = 600.0
WITH_TOOLS = Scenario(
    "conversation",
    in_turn(
        use(text("I look."), bash("one", "echo first output"), bash("two", "cat /nowhere/at/all")),
        say("I have looked."),
        say("Nothing more."),
    ),
)


def claude(here: ClaudeLab, **options: Any) -> Model:
    """Sessions are kept: the tests look at what becomes of them."""
    return resolve(
        "claude", socket=here.socket, cwd=str(here.cwd), keep=True, permission_mode="bypassPermissions", **options
    )


def as_sent(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As the API gets them from claude, which sets the markers of the cache by itself."""
    return to_wire_messages(messages, "anthropic", markers=0)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_the_api_gets_exactly_the_edited_messages(lab: Callable[..., ClaudeLab], mode: str) -> None:
    here = lab(WITH_TOOLS)
    policies = [DropCompletedToolCalls(keep_turns=0), CompressFailedPlans(keep_turns=0)]
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, mode=mode), policies=policies) as conversation:
            first = await conversation.send("Look around.")
            old = conversation.session_id
            assert old is not None
            assert [(call.name, call.failed) for call in first.calls] == [("Bash", False), ("Bash", True)]
            before, place = transcript(here, old).read_bytes(), transcript(here, old).stat().st_ino
            await conversation.send("What now?")
            new = conversation.session_id
            assert new is not None and new != old
            edited = conversation.messages[:-2]
            assert sent(here) == [*as_sent(edited), prompted("What now?")]
            assert "first output" not in json.dumps(sent(here)) and "toolu_one" not in json.dumps(sent(here))
            assert "Failed: " in json.dumps(sent(here))
            await conversation.send("And now?")
            assert conversation.session_id == new
            assert sent(here)[: len(edited)] == as_sent(edited)
            assert sent(here)[-1] == prompted("And now?")
        after = transcript(here, old)
        assert (after.stat().st_ino, after.read_bytes()[: len(before)]) == (place, before)
        added = [json.loads(line)["type"] for line in after.read_bytes()[len(before) :].splitlines()]
        assert not {"user", "assistant"} & set(added)  # a live process notes its own end there
        assert added == [] or mode == "live"
        assert "Nothing more." in vanilla(here, new, "By hand.")
        assert sent(here)[: len(edited)] == as_sent(edited)
        vanilla(here, old, "By hand.")
        assert "first output" in json.dumps(sent(here))


async def test_without_an_edit_the_session_and_its_cache_stay(lab: Callable[..., ClaudeLab]) -> None:
    here = lab(WITH_TOOLS)
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here)) as conversation:
            await conversation.send("Look around.")
            await conversation.send("What now?")
    assert conversation.chats_opened == 1
    assert "first output" in json.dumps(sent(here))


async def test_a_sub_agents_work_is_nested_and_its_report_is_cut_by_its_own_policy(
    lab: Callable[..., ClaudeLab],
) -> None:
    here = lab(Scenario("delegating", with_subagent))
    with trio.fail_after(BOUND_S):
        agents = {"general-purpose": AgentPolicy(keep="transcript", max_chars=400)}
        policies = [SummarizeSubAgentChatter(keep_turns=0)]
        async with Conversation(claude(here), policies=policies, agents=agents) as conversation:
            turn = await conversation.send("Delegate.")
            (delegation,) = turn.calls
            assert isinstance(delegation, SubAgentDelegation)
            assert (delegation.agent, delegation.description) == ("general-purpose", "count")
            inner = [call for step in delegation.steps for call in step.calls]
            assert [type(call) for call in inner] == [ToolInteraction]
            assert inner[0].essence[2:] == ("inner", False)
            await conversation.send("And now?")
            told = json.dumps(sent(here))
    assert "[Bash] inner" in told and "Its report: " in told
    assert conversation.chats_opened == 2


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_the_report_of_a_background_sub_agent_is_its_delegations_result_and_stays_after_an_edit(
    lab: Callable[..., ClaudeLab], mode: str
) -> None:
    here = lab(Scenario("delegating", with_async_agents(1, 2)))
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, mode=mode), policies=[]) as conversation:
            turn = await conversation.send("Delegate.")
            assert (turn.outcome, turn.text) == ("completed", "All agents reported.")
            calls = [call for call in turn.calls if isinstance(call, SubAgentDelegation)]
            results = [(call.state, call.result and call.result.text) for call in calls]
            assert results == [("completed", "agent 0 reports 42"), ("completed", "agent 1 reports 42")]
            assert [[inner.name for step in call.steps for inner in step.calls] for call in calls] == [
                ["Bash"],
                ["Bash"],
            ]
            conversation.edit(calls[1].id, include_in_context=False)
            asked = len(here.api.main_requests)
            await conversation.send("And now?")
            told = json.dumps(here.api.main_requests[asked].body["messages"])
    assert conversation.chats_opened == 2
    assert "agent 0 reports 42" in told and "agent 1 reports 42" not in told and "Async agent launched" not in told


async def test_thinking_is_sent_again_with_its_signature_after_an_edit(lab: Callable[..., ClaudeLab]) -> None:
    thought = use(thinking("Let me ", "think.", signature="cHJvb2Y="), text("I look."), bash("one", "echo hi"))
    here = lab(
        Scenario("thinking", in_turn(thought, say("Done."), use(bash("two", "echo ho")), say("Well."), say("Next.")))
    )
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, model="claude-opus-5-5"), policies=[]) as conversation:
            first = await conversation.send("Think.")
            second = await conversation.send("Go on.")
            conversation.edit(second.calls[0].id, include_in_context=False)
            await conversation.send("And now?")
    assert conversation.chats_opened == 2
    assert [part.signature for step in first.steps for part in step.said if isinstance(part, ThinkingBlock)] == [
        "cHJvb2Y="
    ]
    parts = [part for each in sent(here) for part in each["content"] if isinstance(part, dict)]
    (again,) = [part for part in parts if part["type"] == "thinking"]
    assert (again["thinking"], again["signature"]) == ("Let me think.", "cHJvb2Y=")


async def test_a_hundred_turns_stay_below_the_size_by_what_the_api_is_sent(lab: Callable[..., ClaudeLab]) -> None:
    limit = 6000

    def answer(body: Body, n: int) -> Reply:
        if n % 4 == 0:
            return [*message(body, n, text(f"Look {n}."), bash(f"c{n}", "seq 200"))]
        return [*message(body, n, text("word " * 40, f"{n}"))]

    here = lab(Scenario("long", answer))
    sizes: list[int] = []
    with trio.fail_after(BOUND_S):
        async with Conversation(claude(here, mode="live"), policies=default_policies(limit)) as conversation:
            for n in range(100):
                asked = len(here.api.main_requests)
                await conversation.send(f"Prompt {n}. " + "please " * 10)
                first = here.api.main_requests[asked].body["messages"]
                sizes.append(estimate_tokens(read(first)))
    assert len(conversation.turns) == 100
    assert limit * 0.6 < max(sizes) <= limit
    assert conversation.chats_opened < 50


def read(sent: list[dict[str, Any]]) -> list[Message]:
    """The conversation of a request, for the estimate. What the CLI says of the machine by itself is not in it."""
    found = []
    for each in sent:
        parts = each["content"] if isinstance(each["content"], list) else [{"type": "text", "text": each["content"]}]
        kept = [{name: part[name] for name in part if name not in ("cache_control", "caller")} for part in parts]
        kept = [part for part in kept if not part.get("text", "").startswith("<system-reminder>")]
        if each["role"] != "system" and kept:
            found.append(Message.model_validate({"role": each["role"], "content": kept}))
    return found

"""Conversations over a real daemon with the demo backend: what its CLI has of them after an edit, and after a hundred turns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness

from clisup.llm.answers import TextDelta
from clisup.llm.chat import SessionBudget
from clisup.llm.conversation.context import estimate_tokens, text_tokens
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import SubAgentDelegation
from clisup.llm.conversation.policies import DropCompletedToolCalls, TokenBudget, default_policies
from clisup.llm.failures import BudgetExhausted
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import Message
from clisup.llm.models import Model, resolve

BOUND_S = 240.0
SMALL = 3000


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def demo(daemon: Harness, **options: Any) -> Model:
    return resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd), **options)


def told(text: str) -> list[dict[str, Any]]:
    """What `@history` says: the messages of the CLI's own transcript."""
    return [json.loads(line) for line in text.splitlines()]


def tool_ids(messages: list[dict[str, Any]]) -> list[str]:
    blocks = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [part["id"] for part in blocks if part["type"] == "tool_use"]


async def test_an_edit_reaches_the_cli_and_leaves_the_rest_as_it_was(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), policies=[DropCompletedToolCalls(keep_turns=1)]) as conversation:
            first = await conversation.send('I look.\n@tool Read {"path": "x"} => a long file\nI have read it.')
            assert first.calls[0].essence == ("Read", {"path": "x"}, "a long file", False)
            before = conversation.session_id
            same = await conversation.send("@history")
            assert conversation.session_id == before
            edited = await conversation.send("@history")
            assert conversation.session_id != before
    assert tool_ids(told(same.text)) == [first.calls[0].id]
    seen = told(edited.text)
    assert [message["role"] for message in seen] == ["user", "assistant"] * 2
    assert tool_ids(seen) == [] and "a long file" not in str(seen[1])
    assert "I look." in str(seen[1]) and "I have read it." in str(seen[1])
    assert conversation.chats_opened == 2


async def test_a_hundred_turns_stay_below_the_context_size_in_the_clis_own_transcript(daemon: Harness) -> None:
    seen: list[int] = []
    with trio.fail_after(BOUND_S):
        model = demo(daemon, mode="live")
        async with Conversation(model, policies=default_policies(SMALL)) as conversation:
            for n in range(100):
                assert conversation.context_tokens <= SMALL
                if n % 10 == 9:
                    async with conversation.stream("@history\n@usage 1 1") as stream:
                        done = await stream.finish()
                    seen.append(estimate_tokens([Message.user(str(line)) for line in told(done.text)]))
                    conversation.edit(
                        conversation.turns[-1].id, include_in_context=False
                    )  # it is as long as all of them
                else:
                    await conversation.send(f'Turn {n}.\n@tool Read {{"n": {n}}} => {"line " * 60}\n{"word " * 40}')
    assert len(conversation.turns) == 100
    assert len(seen) == 10
    assert max(seen) <= SMALL * 1.3  # the blocks' own JSON is in it
    assert max(seen) > SMALL * 0.4
    unedited = sum(
        text_tokens(turn.prompt.text) + sum(text_tokens(step.text) for step in turn.steps)
        for turn in conversation.turns
    )
    assert unedited > 5 * SMALL
    assert conversation.chats_opened < 60


async def test_a_conversation_goes_on_after_the_daemon_has_forgotten_it(daemon: Harness, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), path=path) as conversation:
            await conversation.send("My name is Ada.")
        assert daemon.call("session/list", state="closed")["sessions"] == []
        async with Conversation(demo(daemon), path=path) as conversation:
            turn = await conversation.send("@history")
    assert [message["role"] for message in told(turn.text)] == ["user", "assistant"]
    assert "My name is Ada." in turn.text
    assert conversation.turns[0].session_id != conversation.turns[1].session_id


async def test_a_stream_that_is_left_interrupts_the_turn_and_the_conversation_goes_on(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon)) as conversation:
            async with conversation.stream("@text I begin.\n@stall") as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break
            assert conversation.turns[-1].outcome == "interrupted"
            turn = await conversation.send("@history")
    prompt, answer = told(turn.text)
    assert (prompt["role"], answer["role"]) == ("user", "assistant")
    assert "I begin.".startswith(conversation.turns[0].text) and conversation.turns[0].text in str(answer["content"])
    assert conversation.turns[0].text


async def test_a_session_budget_is_the_conversations_over_all_its_sessions(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        policies = [TokenBudget(limit=1, keep_turns=1)]  # edits each time
        async with Conversation(demo(daemon), policies=policies, budget=SessionBudget(turns=3)) as conversation:
            for n in range(3):
                await conversation.send(f"Turn {n}.")
            with pytest.raises(BudgetExhausted):
                await conversation.send("One too many.")
    assert len(conversation.turns) == 3


async def test_calls_of_our_own_tools_go_into_a_history_by_the_name_that_the_cli_has_for_them(daemon: Harness) -> None:
    memory = WorkingMemory()
    with trio.fail_after(BOUND_S):
        policies = [TokenBudget(limit=600, down_to=1.0, keep_turns=1)]
        async with Conversation(demo(daemon), memory=memory, policies=policies) as conversation:
            first = await conversation.send('@mcp memory {"operation": "set", "key": "a", "value": 1}\nKept.')
            assert [(call.name, call.ours, call.failed) for call in first.calls] == [("memory", True, False)]
            conversation.edit(first.calls[0].id, summary="It is kept.")
            turn = await conversation.send('@mcp memory {"operation": "get", "key": "a"}\n@history')
    assert conversation.chats_opened == 2
    assert turn.calls[0].essence == ("memory", {"operation": "get", "key": "a"}, "1", False)
    said = [part for message in told(turn.text) for part in message["content"] if isinstance(part, dict)]
    assert [part["name"] for part in said if part["type"] == "tool_use"] == ["mcp__clisup__memory"]


async def test_a_kill_of_the_daemon_in_the_middle_of_a_turn_is_not_seen(daemon: Harness, tmp_path: Path) -> None:
    memory, go = WorkingMemory(tmp_path / "memory.json"), tmp_path / "go"
    note = '@mcp memory {"operation": "set", "key": "a", "value": 1}'
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), memory=memory, path=tmp_path / "chat.json") as conversation:
            async with conversation.stream(f"Before. {'x' * 20}\n@wait-file {go}\n{note}\nAfter.") as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break
                await trio.to_thread.run_sync(daemon.restart)
                go.touch()
                await stream.finish()
            turn = conversation.turns[-1]
            same = await conversation.send("@history")
    assert (turn.outcome, turn.text) == ("completed", "After.")
    assert [call.essence[2] for call in turn.calls] == ["kept a"] and memory.get("a") == 1
    assert conversation.chats_opened == 1
    assert "After." in same.text


@pytest.mark.parametrize("mode", ["one-shot", "live"])
async def test_the_answer_of_a_turn_with_a_background_sub_agent_comes_after_the_report(
    daemon: Harness, mode: str
) -> None:
    script = "@delegate 0.5 forty-two => It is forty-two.\nI wait."
    with trio.fail_after(BOUND_S):
        completion = await demo(daemon, mode=mode).complete([Message.user(script)])
        async with Conversation(demo(daemon, mode=mode), policies=[]) as conversation:
            turn = await conversation.send(script)
            after = await conversation.send("What now?")
    assert completion.text == turn.text == "It is forty-two."
    (delegation,) = turn.calls
    assert isinstance(delegation, SubAgentDelegation)
    assert delegation.result is not None
    assert (delegation.state, delegation.result.text) == ("completed", "forty-two")
    assert [step.text for step in turn.steps] == ["", "I wait.", "It is forty-two."]
    assert after.text == "You said: What now?"


async def test_a_mark_of_the_cache_opens_no_other_chat_on_a_cli_and_an_edit_does(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), policies=[]) as conversation:
            first = await conversation.send("hello")
            conversation.edit(first.id, cache=True)
            await conversation.send("again")
            assert conversation.chats_opened == 1
            conversation.edit(first.id, summary="We met.")
            await conversation.send("once more")
            assert conversation.chats_opened == 2

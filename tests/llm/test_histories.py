"""What was said goes on elsewhere: after answers that end with a tool, and with ids that CLIs count anew, on a real daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until

from clisup.llm.answers import ToolStarted
from clisup.llm.chat import ChatOptions
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.policies import DropCompletedToolCalls
from clisup.llm.failures import Authentication, StructureError
from clisup.llm.messages import Message
from clisup.llm.models import Client, Model, resolve
from clisup.llm.testing import Reply, ScriptedModel, ToolCall
from clisup.llm.tools import tool

BOUND_S = 120.0
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
def daemon(serve: Callable[..., Harness]) -> Harness:
    return serve()


def demo(daemon: Harness, **options: Any) -> Model:
    return resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd), **options)


def dead() -> Authentication:
    return Authentication("not logged in", kind="authentication")


async def talk(client: Client, *prompts: str, schema: dict[str, Any] | None = None) -> list[str]:
    """Each prompt but the last one is asked by the schema."""
    texts = []
    async with client.chat() as chat:
        for place, prompt in enumerate(prompts, 1):
            async with chat.stream(prompt, output_schema=None if place == len(prompts) else schema) as events:  # type: ignore[attr-defined]
                texts.append((await events.finish()).text)
    return texts


@pytest.mark.parametrize("prompt", ['@structured {"n": 7}', 'I give it to you.\n@structured {"n": 7}'])
async def test_an_answer_by_a_schema_may_be_the_history_of_what_follows(daemon: Harness, prompt: str) -> None:
    with trio.fail_after(BOUND_S):
        async with demo(daemon).chat() as chat, chat.stream(prompt, output_schema=SCHEMA) as events:  # type: ignore[attr-defined]
            done = await events.finish()
        assert done.structured == {"n": 7}
        history = (Message.user(prompt), *done.messages)
        told = await demo(daemon).complete("@history", history=history)
    assert done.messages[-1] == Message.assistant('{"n":7}')
    assert '{\\"n\\":7}' in told.text


@pytest.mark.parametrize("prompt", ['@structured {"n": 7}', 'I give it to you.\n@structured {"n": 7}'])
async def test_a_conversation_goes_on_in_a_new_chat_after_an_answer_by_a_schema(daemon: Harness, prompt: str) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), policies=[DropCompletedToolCalls(keep_turns=0)]) as conversation:
            turn = await conversation.send(prompt, output_schema=SCHEMA)
            told = await conversation.send("@history")
    assert (turn.structured, conversation.chats_opened) == ({"n": 7}, 2)
    assert '{\\"n\\":7}' in told.text and "without an answer" not in told.text


async def test_a_fallback_goes_on_after_answers_whose_ids_of_calls_are_the_same(daemon: Harness) -> None:
    primary = ScriptedModel(
        Reply(ToolCall("Read", result="x"), "One."), Reply(ToolCall("Read", result="y"), "Two."), dead()
    )
    with trio.fail_after(BOUND_S):
        texts = await talk(Client(primary, [demo(daemon)]), "first", "second", "@history")
    assert texts[:2] == ["One.", "Two."]
    assert all(word in texts[2] for word in ("first", "One.", "second", "Two."))


async def test_a_fallback_goes_on_after_an_answer_without_a_last_word(daemon: Harness) -> None:
    primary = ScriptedModel(Reply("I look.", ToolCall("Read", result="x")), Reply(), dead())
    with trio.fail_after(BOUND_S):
        texts = await talk(Client(primary, [demo(daemon)]), "first", "second", "@history")
    assert all(word in texts[2] for word in ("first", "I look.", "second"))


async def test_a_fallback_goes_on_after_an_answer_by_a_schema(daemon: Harness) -> None:
    words = ScriptedModel(dead())
    async with demo(daemon).chat() as chat, chat.stream('@structured {"n": 7}', output_schema=SCHEMA) as events:  # type: ignore[attr-defined]
        done = await events.finish()
    options = ChatOptions(history=(Message.user("n?"), *done.messages))
    with trio.fail_after(BOUND_S):
        async with Client(words, [demo(daemon)]).chat(options) as chat, chat.stream("@history") as events:  # type: ignore[attr-defined]
            assert '{\\"n\\":7}' in (await events.finish()).text


async def test_words_where_a_value_was_asked_for_are_an_error(daemon: Harness) -> None:
    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon)) as conversation:
            with pytest.raises(StructureError) as failed:
                await conversation.send("@unstructured\nWords alone.", output_schema=SCHEMA)
            told = await conversation.send("@history")
    assert failed.value.text == "Words alone."
    assert conversation.turns[0].outcome == "completed"
    assert "Words alone." in told.text


async def test_two_conversations_with_tools_run_side_by_side(daemon: Harness) -> None:
    texts: dict[str, str] = {}
    both = trio.Event()
    here: set[str] = set()

    async def talk(name: str) -> None:
        @tool
        async def meet(word: str) -> str:
            """Wait for the other one."""
            here.add(name)
            if len(here) == 2:
                both.set()
            await both.wait()
            return f"{name} {word}"

        policies = [DropCompletedToolCalls(keep_turns=0)]
        async with Conversation(demo(daemon), tools=[meet], policies=policies) as conversation:
            for n in range(3):
                turn = await conversation.send(f'@mcp meet {{"word": "{n}"}}\nDone {n}.')
                assert [call.essence[2] for call in turn.calls] == [f"{name} {n}"]
            assert conversation.chats_opened == 3
            texts[name] = conversation.turns[-1].text

    with trio.fail_after(BOUND_S):
        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(talk, name)
    assert texts == {"a": "Done 2.", "b": "Done 2."}
    assert daemon.call("session/list")["sessions"] == []


async def test_a_send_that_is_cancelled_leaves_a_conversation_that_goes_on(daemon: Harness, tmp_path: Path) -> None:
    running, ended = trio.Event(), trio.Event()

    @tool
    async def hang() -> str:
        """Never answers."""
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return ""

    with trio.fail_after(BOUND_S):
        async with Conversation(demo(daemon), tools=[hang], path=tmp_path / "chat.json") as conversation:
            with trio.CancelScope() as scope:
                async for event in conversation.stream("@mcp hang {}\nNever said."):
                    if isinstance(event, ToolStarted):
                        await running.wait()
                        scope.cancel()
            assert scope.cancelled_caught
            (cut,) = conversation.turns
            assert (cut.outcome, [call.name for call in cut.calls]) == ("interrupted", ["hang"])
            turn = await conversation.send("@history")
        assert ended.is_set() and '"tool_use"' in turn.text
    until(lambda: not daemon.leftovers(), "its process lives")
    assert daemon.call("session/list")["sessions"] == []

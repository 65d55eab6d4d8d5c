"""Conversations over a scripted model: what each prompt is sent with, what is kept, and what an edit does."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from conversation_samples import step, turn, turns
from hypothesis import given, settings

from clisup.errors import UsageError, WorldError
from clisup.llm.answers import Cost, Finished, StreamEvent, TextDelta
from clisup.llm.budget import Budget
from clisup.llm.chat import Chat, ChatOptions, SessionBudget
from clisup.llm.conversation.context import context_of, estimate_tokens
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.conversation.nodes import AgentPolicy, SubAgentDelegation, Turn
from clisup.llm.conversation.policies import (
    DropCompletedToolCalls,
    SummarizeSubAgentChatter,
    TokenBudget,
    default_policies,
)
from clisup.llm.conversation.saved import MAX_FILE_BYTES, SavedConversation
from clisup.llm.failures import BackendUnavailable, BudgetExhausted, ContextOverflow, InvalidRequest, Overloaded
from clisup.llm.fallbacks import RetryPolicy
from clisup.llm.memory import WorkingMemory
from clisup.llm.messages import Message, TextBlock
from clisup.llm.models import Client
from clisup.llm.streams import HeldChat
from clisup.llm.testing import Asked, Reply, ScriptedChat, ScriptedModel, ToolCall
from clisup.model.usage import Usage

READ = ToolCall("read", {"path": "x"}, result="a long file " * 50)


def seen(asked: Asked) -> list[str]:
    return [message.text for message in asked.messages]


async def test_each_prompt_comes_after_all_that_was_said_in_the_same_chat() -> None:
    model = ScriptedModel("One.", "Two.")
    async with Conversation(model, system="Be brief.") as conversation:
        assert (await conversation.send("First?")).text == "One."
        assert (await conversation.send("Second?")).text == "Two."
    assert model.opened == conversation.chats_opened == 1
    assert model.asked[1].system == "Be brief."
    assert seen(model.asked[1]) == ["First?", "One.", "Second?"]
    assert [turn.prompt.text for turn in conversation.turns] == ["First?", "Second?"]


async def test_a_stream_gives_the_events_and_leaves_the_turn() -> None:
    async with Conversation(ScriptedModel("Hello there.")) as conversation:
        events = [event async for event in conversation.stream("Hi")]
        assert isinstance(events[-1], Finished)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello there."
        assert conversation.turns[-1].text == "Hello there."


# -- edits


async def test_an_edit_opens_a_new_chat_with_exactly_the_edited_messages() -> None:
    model = ScriptedModel(Reply("I read.", READ, "Read."), "Yes.", "No.")
    async with Conversation(model, policies=[DropCompletedToolCalls(keep_turns=0)]) as conversation:
        await conversation.send("Read it.")
        await conversation.send("Again?")
        await conversation.send("And now?")
    assert model.opened == 2  # the second edit finds nothing to do
    assert model.asked[1].options.history == (Message.user("Read it."), model.asked[1].messages[1])
    assert seen(model.asked[1]) == ["Read it.", "I read.Read.", "Again?"]
    assert seen(model.asked[2]) == ["Read it.", "I read.Read.", "Again?", "Yes.", "And now?"]
    assert conversation.turns[0].calls[0].essence[2] == "a long file " * 50  # nothing is lost


async def test_policies_run_in_their_order_and_may_be_async() -> None:
    said: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        async def edit(self, turns: tuple[Turn, ...], *, beside: int = 0) -> tuple[Turn, ...]:
            await trio.lowlevel.checkpoint()
            said.append(self.name)
            return turns

    async with Conversation(ScriptedModel("One."), policies=[Named("b"), Named("a")]) as conversation:
        await conversation.send("First?")
    assert said == ["b", "a"]


async def test_a_node_that_is_edited_by_hand_is_sent_so_from_the_next_prompt_on() -> None:
    model = ScriptedModel(Reply(READ, "Read."), "Yes.")
    async with Conversation(model, policies=()) as conversation:
        first = await conversation.send("Read it.")
        conversation.edit(first.calls[0].id, summary="It was a long file.")
        await conversation.send("Again?")
        with pytest.raises(InvalidRequest, match="has no node"):
            conversation.edit("nobody", summary="x")
        with pytest.raises(InvalidRequest, match="has no field"):
            conversation.edit(first.id, text="x")
    assert "It was a long file." in str(model.asked[1].options.history)


async def test_a_hundred_turns_stay_below_the_context_size_by_the_default_policies() -> None:
    sizes: list[int] = []

    def answer(asked: Asked) -> Reply:
        sizes.append(estimate_tokens(asked.messages, system=asked.system, tools=asked.options.tools))
        n = len(sizes)
        failing = ToolCall("run", {"command": "make"}, result=OSError("it failed\n" + "trace " * 100))
        agent = ToolCall("Agent", {"subagent_type": "Explore"}, inside=["Looking.", "report " * 200])
        return Reply(
            f"I look {n}.", READ, *((failing,) if n % 5 == 0 else ()), *((agent,) if n % 7 == 0 else ()), "word " * 60
        )

    model = ScriptedModel(then=answer)
    memory = WorkingMemory()
    async with Conversation(model, system="Be brief.", policies=default_policies(8000), memory=memory) as conversation:
        for n in range(100):
            await conversation.send(f"Prompt {n}. " + "please " * 20)
    assert len(conversation.turns) == 100
    assert max(sizes) <= 8000
    assert max(sizes) > 5000  # it is used, too
    assert conversation.chats_opened < 60
    assert "Prompt 98." in str(model.asked[-1].messages)


async def test_a_hundred_long_turns_without_tools_stay_below_fifty_thousand_tokens_by_default() -> None:
    sizes: list[int] = []

    def answer(asked: Asked) -> Reply:
        sizes.append(estimate_tokens(asked.messages, system=asked.system, tools=asked.options.tools))
        return Reply("word " * 1000)

    async with Conversation(ScriptedModel(then=answer)) as conversation:
        for n in range(100):
            await conversation.send(f"Prompt {n}. " + "please " * 200)
    assert 40_000 < max(sizes) <= 50_000


async def test_what_the_prompt_itself_takes_is_set_aside() -> None:
    model = ScriptedModel(*["x" * 700] * 3)
    async with Conversation(model, policies=[TokenBudget(limit=1500, keep_turns=1)]) as conversation:
        await conversation.send("One.")
        await conversation.send("Two.")
        await conversation.send("y" * 4000)
    assert estimate_tokens(model.asked[2].messages) <= 1500
    assert conversation.chats_opened == 2


async def test_sub_agents_get_their_own_policies_by_kind() -> None:
    explore = ToolCall("Agent", {"subagent_type": "Explore"}, inside=["word " * 500])
    plan = ToolCall("Agent", {"subagent_type": "Plan"}, inside=["plan " * 500])
    model = ScriptedModel(Reply([explore, plan], "Good."), "Yes.")
    agents = {"Explore": AgentPolicy(keep="nothing"), "Plan": AgentPolicy(keep="whole")}
    policies = [SummarizeSubAgentChatter(keep_turns=0)]
    async with Conversation(model, policies=policies, agents=agents) as conversation:
        first = await conversation.send("Look.")
        assert [type(call) for call in first.calls] == [SubAgentDelegation] * 2
        await conversation.send("And?")
    history = str(model.asked[1].options.history)
    assert "plan plan" in history and "word word" not in history


# -- failures


async def test_a_turn_that_failed_is_kept_and_the_next_one_gets_a_new_chat() -> None:
    model = ScriptedModel("One.", Reply("I try.", READ, error=Overloaded("busy", kind="overloaded")), "Three.")
    async with Conversation(model, policies=()) as conversation:
        await conversation.send("First?")
        with pytest.raises(Overloaded):
            await conversation.send("Second?")
        failed = conversation.turns[-1]
        assert (failed.outcome, failed.error_kind, len(failed.calls)) == ("failed", "overloaded", 1)
        await conversation.send("Third?")
    assert model.opened == 2
    assert seen(model.asked[2])[2:5] == ["Second?", "I try.", ""]


async def test_a_turn_that_failed_before_it_did_anything_is_asked_again_as_if_it_had_not_been() -> None:
    model = ScriptedModel(Overloaded("busy", kind="overloaded"), "One.")
    async with Conversation(model) as conversation:
        with pytest.raises(Overloaded):
            await conversation.send("First?")
        await conversation.send("First?")
    assert seen(model.asked[1]) == ["First?"]
    assert [turn.outcome for turn in conversation.turns] == ["failed", "completed"]


async def test_a_stream_that_is_left_is_an_interrupted_turn() -> None:
    model = ScriptedModel(Reply("I begin to say"), "Two.")
    async with Conversation(model) as conversation:
        async with conversation.stream("First?") as stream:
            async for event in stream:
                assert isinstance(event, TextDelta)
                break
        assert conversation.turns[-1].outcome == "interrupted"
        await conversation.send("Second?")
    assert model.asked[0].outcome == "left"
    assert seen(model.asked[1]) == ["First?", "I", "Second?"]


async def test_to_begin_the_next_stream_ends_one_that_was_left() -> None:
    model = ScriptedModel("One and more.", "Two.")
    async with Conversation(model) as conversation:
        left = conversation.stream("First?")
        await anext(left)
        await conversation.send("Second?")
    assert [turn.outcome for turn in conversation.turns] == ["interrupted", "completed"]


async def test_a_loop_that_is_broken_out_of_ends_its_turn() -> None:
    model = ScriptedModel("One and more.", "Two.")
    async with Conversation(model) as conversation:
        async for _ in conversation.stream("First?"):
            break
        await conversation.send("Second?")
    assert [turn.outcome for turn in conversation.turns] == ["interrupted", "completed"]


async def test_a_second_task_is_refused_while_one_waits() -> None:
    stop = trio.Event()
    model = ScriptedModel(Reply(stop.wait, "One."))
    async with Conversation(model) as conversation, trio.open_nursery() as nursery:
        nursery.start_soon(conversation.send, "First?")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InvalidRequest, match="another task"):
            await conversation.send("Second?")
        stop.set()
    assert [turn.text for turn in conversation.turns] == ["One."]


async def test_of_two_tasks_that_begin_at_once_one_is_refused() -> None:
    refused: list[str] = []

    async def send(prompt: str) -> None:
        try:
            await conversation.send(prompt)
        except InvalidRequest:
            refused.append(prompt)

    async with Conversation(ScriptedModel(then="Yes.")) as conversation, trio.open_nursery() as nursery:
        nursery.start_soon(send, "First?")
        nursery.start_soon(send, "Second?")
    assert sorted([*refused, *(turn.prompt.text for turn in conversation.turns)]) == ["First?", "Second?"]


async def test_cancelling_a_send_keeps_what_came_and_the_conversation() -> None:
    model = ScriptedModel(Reply("I begin.", READ, trio.sleep_forever), "Two.")
    async with Conversation(model) as conversation:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(conversation.send, "First?")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert conversation.turns[-1].outcome == "interrupted"
        assert (await conversation.send("Second?")).text == "Two."
    assert "I begin." in seen(model.asked[1])


async def test_a_refusal_to_open_a_chat_is_no_turn() -> None:
    class Nowhere:
        @asynccontextmanager
        async def chat(self, options: ChatOptions | None = None) -> AsyncIterator[Any]:
            raise BackendUnavailable("no CLI", kind="backend_unavailable")
            yield

    budget = Budget(iterations=1)
    async with Conversation(Nowhere(), budget=budget) as conversation:
        with pytest.raises(BackendUnavailable):
            await conversation.send("Hi")
    assert conversation.turns == ()
    assert budget.spent.iterations == 0


async def test_an_exception_of_the_block_comes_out_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Conversation(ScriptedModel("One.")) as conversation:
            await conversation.send("First?")
            raise ZeroDivisionError


async def test_chats_may_change_within_blocks_of_the_caller() -> None:
    """A chat that holds a nursery is opened in one block of the caller's and closed in another."""

    class Nested:
        open = 0

        @asynccontextmanager
        async def chat(self, options: ChatOptions | None = None) -> AsyncIterator[Any]:
            async with trio.open_nursery() as nursery, ScriptedModel(then=Reply(READ, "Yes.")).chat(options) as chat:
                nursery.start_soon(trio.sleep_forever)
                self.open += 1
                yield chat
                self.open -= 1
                nursery.cancel_scope.cancel()

    model = Nested()
    async with Conversation(model, policies=[DropCompletedToolCalls(keep_turns=0)]) as conversation:
        async with trio.open_nursery() as nursery:
            await conversation.send("One.")
            assert model.open == 1
        with trio.move_on_after(60):
            await conversation.send("Two.")
            assert model.open == 1
        nursery.cancel_scope.cancel()
    assert (conversation.chats_opened, model.open) == (2, 0)


async def test_outside_of_its_block_it_says_nothing() -> None:
    conversation = Conversation(ScriptedModel("One."))
    with pytest.raises(InvalidRequest, match="block has not begun"):
        await conversation.send("Hi")
    async with conversation:
        with pytest.raises(InvalidRequest, match="has begun already"):
            await conversation.__aenter__()


@pytest.mark.parametrize("prompt", [[Message.user("a"), Message.user("b")], [Message.assistant("a")]])
async def test_a_prompt_is_one_message_of_the_user(prompt: Any) -> None:
    async with Conversation(ScriptedModel()) as conversation:
        with pytest.raises(InvalidRequest):
            await conversation.send(prompt)


async def test_a_chat_that_ends_by_itself_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[HeldChat] = []
    original = HeldChat.enter

    async def enter(held: HeldChat, nursery: trio.Nursery) -> HeldChat:
        opened.append(await original(held, nursery))
        return opened[-1]

    monkeypatch.setattr(HeldChat, "enter", enter)
    model = ScriptedModel("One.", "Two.")
    async with Conversation(model) as conversation:
        await conversation.send("First?")
        await opened[0].close()
        await conversation.send("Second?")
    assert len(opened) == 2
    assert seen(model.asked[1]) == ["First?", "One.", "Second?"]


async def test_a_context_that_the_model_finds_too_long_is_halved_and_sent_once_more() -> None:
    too_long = ContextOverflow("prompt is too long", kind="context_overflow")
    model = ScriptedModel("x" * 3500, "y" * 3500, "z" * 3500, too_long, "Five.")
    async with Conversation(model) as conversation:
        for n in range(3):
            await conversation.send(str(n))
        before = conversation.context_tokens
        assert (await conversation.send("Go on.")).text == "Five."
    assert estimate_tokens(model.asked[4].messages) <= before * 0.6
    assert seen(model.asked[4])[-1] == "Go on."
    assert [turn.outcome for turn in conversation.turns] == ["completed"] * 3 + ["failed", "completed"]


@pytest.mark.parametrize("policies", [None, ()])
async def test_what_cannot_be_shortened_raises_that_it_is_too_long(policies: Any) -> None:
    too_long = ContextOverflow("prompt is too long", kind="context_overflow")
    model = ScriptedModel("One.", *([] if policies is None else ["x" * 3500]), then=too_long)
    async with Conversation(model, policies=policies, history=[]) as conversation:
        await conversation.send("First?")
        if policies is not None:
            await conversation.send("Second?")
        with pytest.raises(ContextOverflow):
            await conversation.send("Third?")
    assert len(model.asked) == (2 if policies is None else 3)


async def test_a_client_with_fallbacks_carries_the_conversation_over() -> None:
    first = ScriptedModel("One.", Overloaded("busy", kind="overloaded"), name="scripted/first")
    second = ScriptedModel("Two.", "Three.", name="scripted/second")
    async with Conversation(Client(first, [second], retry=RetryPolicy(attempts=1))) as conversation:
        await conversation.send("First?")
        turn = await conversation.send("Second?")
        await conversation.send("Third?")
    assert (turn.model, turn.outcome) == ("scripted/second", "completed")
    assert seen(second.asked[1]) == ["First?", "One.", "Second?", "Two.", "Third?"]


async def test_it_is_told_line_by_line() -> None:
    inner = ToolCall("read", {"path": "y"}, result=OSError("no\nsuch\x1b[31m file"))
    agent = ToolCall("Agent", {"subagent_type": "Explore"}, result="word " * 200, inside=[inner, "Told."])
    policies = [DropCompletedToolCalls(keep_turns=0), SummarizeSubAgentChatter(keep_turns=0)]
    async with Conversation(ScriptedModel(Reply("I look.", READ, agent, "Seen.")), policies=policies) as conversation:
        turn = await conversation.send("Look.")
        await conversation.apply_policies()
    tokens = estimate_tokens(conversation.messages)
    assert str(conversation).splitlines() == [
        f"turn {turn.id[:8]} completed, {tokens} tokens: Look.",
        f'  read {{"path": "x"}} [left out]: {("a long file " * 50)[:97]}...',
        f'  Agent (Explore) {{"subagent_type": "Explore"}} [summed up]: {("word " * 200)[:97]}...',
        '    read {"path": "y"} [failed]: no such [31m file',
    ]


# -- budgets


async def test_a_programs_budget_refuses_before_and_counts_after() -> None:
    budget = Budget(iterations=2, usd=1.0)
    model = ScriptedModel(then=Reply("Yes.", cost=Cost(0.25, "reported")))
    async with Conversation(model, budget=budget) as conversation:
        await conversation.send("One.")
        await conversation.send("Two.")
        with pytest.raises(BudgetExhausted):
            await conversation.send("Three.")
    assert (budget.spent.usd, conversation.cost, len(model.asked)) == (0.5, Cost(0.5, "reported"), 2)
    assert model.asked[0].options.budget == SessionBudget(usd=1.0)


async def test_a_programs_seconds_cut_an_answer_short(autojump_clock: trio.testing.MockClock) -> None:
    budget = Budget(wall_s=5, clock=trio.current_time)
    async with Conversation(ScriptedModel(Reply("I begin.", READ, trio.sleep_forever)), budget=budget) as conversation:
        with pytest.raises(BudgetExhausted, match="cut short"):
            await conversation.send("One.")
    assert conversation.turns[-1].error_kind == "budget_exhausted"


async def test_an_answer_that_is_whole_is_not_cut_short_by_who_takes_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Polite(ScriptedChat):
        async def _events(self, prompt: Any, output_schema: Any) -> AsyncGenerator[StreamEvent, None]:
            async for event in super()._events(prompt, output_schema):
                yield event
            await trio.lowlevel.checkpoint()  # as the stream of a session does at its end

    class Model(ScriptedModel):
        @asynccontextmanager
        async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
            yield Polite(self, options)

    budget = Budget(wall_s=5, clock=trio.current_time)
    async with Conversation(Model("Done."), budget=budget) as conversation:
        async for event in conversation.stream("One."):
            if isinstance(event, Finished):
                await trio.sleep(60)
    assert conversation.turns[-1].outcome == "completed"


async def test_a_new_session_gets_what_earlier_ones_left_of_the_budget() -> None:
    reply = Reply(READ, "Yes.", usage=Usage(input_tokens=100, output_tokens=50), cost=Cost(0.25, "estimated"))
    model = ScriptedModel(then=reply)
    limits = SessionBudget(usd=0.6, tokens=1000, turns=5)
    async with Conversation(model, budget=limits, policies=[DropCompletedToolCalls(keep_turns=0)]) as conversation:
        for n in range(3):
            await conversation.send(str(n))
        with pytest.raises(BudgetExhausted) as exhausted:
            await conversation.send("more")
    budgets = [asked.options.budget for asked in model.asked]
    assert budgets[0] == limits
    assert budgets[1] == SessionBudget(usd=0.35, tokens=850, turns=4)
    assert exhausted.value.data["which"] == "usd"
    assert conversation.usage.output_tokens == 150


# -- memory


async def test_the_model_reaches_the_memory_by_its_tool_and_hears_of_its_keys() -> None:
    memory = WorkingMemory()
    keep = ToolCall("memory", {"operation": "set", "key": "plan", "value": ["look"]})
    model = ScriptedModel(Reply(keep, "Kept."), "Yes.")
    async with Conversation(model, memory=memory, policies=[DropCompletedToolCalls(keep_turns=0)]) as conversation:
        await conversation.send("Keep it.")
        await conversation.send("Again?")
    assert memory.get("plan") == ["look"]
    assert conversation.turns[0].calls[0].ours
    assert "tool_use" not in str(model.asked[1].options.history)
    assert "It holds: plan." in str(model.asked[1].system)
    assert [tool.name for tool in model.asked[1].options.tools] == ["memory"]


# -- saving


async def test_a_conversation_goes_on_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    async with Conversation(ScriptedModel(Reply("I read.", READ, "Read.")), path=path, system="Be brief.") as first:
        await first.send("Read it.")
    model = ScriptedModel("Yes.")
    async with Conversation(model, path=path) as second:
        assert (second.id, second.turns, second.system) == (first.id, first.turns, "Be brief.")
        await second.send("Again?")
    assert model.asked[0].options.history == first.messages
    assert len(json.loads(path.read_text())["turns"]) == 2
    assert path.stat().st_mode & 0o777 == 0o600


async def test_each_turn_is_in_the_file_when_it_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    model = ScriptedModel("One.", Reply("Two", error=Overloaded("busy", kind="overloaded")))
    async with Conversation(model, path=path) as conversation:
        async for event in conversation.stream("First?"):
            if isinstance(event, Finished):
                assert '"One."' in path.read_text()
        with pytest.raises(Overloaded):
            await conversation.send("Second?")
        assert SavedConversation.from_json(path.read_bytes()).turns == conversation.turns


@settings(max_examples=80)
@given(turns())
def test_any_turns_come_back_from_json_as_they_were(made: tuple[Turn, ...]) -> None:
    saved = SavedConversation(id="c", created_at="2026-01-01T00:00:00Z", turns=made)
    assert SavedConversation.from_json(saved.to_json()) == saved


def test_what_no_text_file_could_hold_is_kept_too() -> None:
    made = turn(
        1, step("half a pair: \ud83d"), usage=Usage(input_tokens=3), cost=Cost(0.5, "estimated"), structured={"a": [1]}
    )
    saved = SavedConversation(id="c", created_at="", turns=(made,))
    assert SavedConversation.from_json(saved.to_json()) == saved


def test_json_goes_to_another_model_and_says_what_is_wrong() -> None:
    conversation = Conversation(
        ScriptedModel(), history=[Message.user("a"), Message.assistant("b")], system="Be brief."
    )
    again = Conversation.from_json(conversation.to_json(), ScriptedModel())
    assert (again.id, again.turns, again.system) == (conversation.id, conversation.turns, "Be brief.")
    for text, problem in (
        ("{", "not a conversation"),
        ('{"format":"clisup.conversation","version":2}', "version 2"),
        ("[]", "not a conversation"),
    ):
        with pytest.raises(UsageError, match=problem):
            Conversation.from_json(text, ScriptedModel())


def test_a_file_that_is_none_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text("hello")
    with pytest.raises(UsageError, match=r"chat\.json"):
        Conversation(ScriptedModel(), path=path)
    path.write_text('{"format": "clisup.memory"}')
    with pytest.raises(UsageError, match=r"chat\.json is not a conversation: format: "):
        Conversation(ScriptedModel(), path=path)
    path.write_text("hello")
    assert path.read_text() == "hello"
    assert MAX_FILE_BYTES > 2**20


def test_a_history_beside_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(Conversation(ScriptedModel()).to_json())
    with pytest.raises(InvalidRequest, match="holds a conversation already"):
        Conversation(ScriptedModel(), path=path, history=[Message.user("a")])


async def test_saving_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    conversation = Conversation(ScriptedModel())
    with pytest.raises(WorldError, match="failed to write"):
        await conversation.save(tmp_path / "nowhere" / "chat.json")
    with pytest.raises(InvalidRequest):
        await conversation.save()


async def test_a_history_of_messages_or_turns_is_what_was_said_before() -> None:
    messages = [Message.user("a"), Message.assistant("b")]
    model = ScriptedModel("Yes.", "Yes.")
    for history in (messages, Conversation(model, history=messages).turns):
        async with Conversation(model, history=history) as conversation:
            await conversation.send("c")
    assert seen(model.asked[0]) == seen(model.asked[1]) == ["a", "b", "c"]


@pytest.mark.parametrize("history", [[{"role": "user", "content": "a"}], ["a"], [Message.user("a"), turn(1)]])
def test_a_history_of_anything_else_is_refused(history: Any) -> None:
    with pytest.raises(InvalidRequest, match="other than messages or turns"):
        Conversation(ScriptedModel(), history=history)


def test_a_budget_that_would_hold_nothing_is_refused() -> None:
    budget: Any = {"usd": 1.0}
    with pytest.raises(InvalidRequest, match="a value of type dict is not a budget"):
        Conversation(ScriptedModel(), budget=budget)


def test_a_place_where_nothing_can_be_kept_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        Conversation(ScriptedModel(), path=tmp_path / "nowhere" / "chat.json")


async def test_the_clock_is_the_callers() -> None:
    async with Conversation(ScriptedModel("One."), clock=lambda: datetime(2026, 2, 3, tzinfo=UTC)) as conversation:
        made = await conversation.send("First?")
    assert (made.at, made.ended_at) == ("2026-02-03T00:00:00.000000Z",) * 2


async def test_what_is_sent_can_be_looked_at_beforehand() -> None:
    async with Conversation(ScriptedModel("One."), system="Be brief.") as conversation:
        await conversation.send([TextBlock(text="Look.", cache=True)])
        assert conversation.messages == context_of(conversation.turns)
        assert conversation.context_tokens > 5
        wire = conversation.to_wire_messages("anthropic")
        assert wire[0]["content"][0]["cache_control"] == {"type": "ephemeral"}
        assert conversation.to_wire_messages("openai")[1] == {"role": "assistant", "content": "One."}
        assert conversation.session_id is None

"""When an answer ends at calls of the caller: by a turn's events and the daemon's calls alone, in a time of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from clisup.client.aio_tools import ToolCall, ToolReply
from clisup.client.events import AssistantMessage, Block, Envelope, MessageStart, MessageStop, ToolResult, ToolUse
from clisup.client.events import Retracted as TakenBack
from clisup.llm.answers import Finished, ModelName
from clisup.llm.messages import ToolResultBlock
from clisup.llm.sessions.caller_tools import BESIDE_S, WHOLE_S, CallerCalls
from clisup.llm.sessions.turn_reader import TurnReader
from clisup.llm.tools import ToolDefinition

ASK = ToolDefinition("ask", "Ask.", {"type": "object"})
START, STOP = MessageStart(message_id="m1"), MessageStop(message_id="m1")


class Scene:
    """A turn's reader, the calls of its session, and a nursery for the calls. `replies` are the answers of calls, by the bridge's ids."""

    def __init__(self, nursery: trio.Nursery, *, tells_ends: bool = True) -> None:
        self.reader = TurnReader(ModelName("cli"), callers=["mcp__clisup__ask"])
        self.calls = CallerCalls([ASK], tells_ends=tells_ends)
        self.calls.follow(self.reader)
        self.replies: dict[str, ToolReply] = {}
        self._nursery = nursery

    def say(self, *events: Any) -> list[Any]:
        return [told for event in events for told in self.reader.read(Envelope("s", 1, "", "t1", "backend", event))]

    def use(self, id_: str, name: str = "ask", parent: str | None = None, **arguments: Any) -> ToolUse:
        return ToolUse(
            tool_use_id=id_,
            name=f"mcp__clisup__{name}",
            input=arguments,
            **({"parent_tool_use_id": parent} if parent else {}),
        )

    async def call(self, call_id: str, tool_use_id: str | None, **arguments: Any) -> None:
        """The daemon's `tool/call`."""
        call = ToolCall("s", call_id, "ask", arguments, "t1", tool_use_id)

        async def wait() -> None:
            self.replies[call_id] = await self.calls.wait(call)

        self._nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()

    @property
    def due(self) -> list[str]:
        return [block.id for block in self.calls.due()]

    async def bring(self, *ids: str) -> None:
        self.reader.bring([])
        self.calls.bring({id_: ToolResultBlock(tool_use_id=id_, content=id_) for id_ in ids})
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def scene(nursery: trio.Nursery) -> Callable[..., Scene]:
    return lambda **options: Scene(nursery, **options)


async def test_an_answer_ends_when_its_message_is_whole_and_one_of_its_calls_has_come(scene: Any) -> None:
    on = scene()
    on.say(START, on.use("a"))
    await on.call("c1", "a")
    assert on.due == [], "the message may go on with another call"
    on.say(on.use("b"), STOP)
    assert on.due == ["a", "b"]


async def test_a_call_that_comes_before_its_event_waits_for_it(scene: Any) -> None:
    on = scene()
    await on.call("c1", "a")
    assert on.due == []
    on.say(START, on.use("a"), STOP)
    assert on.due == ["a"]


async def test_the_results_of_calls_that_come_later_wait_for_them(scene: Any) -> None:
    on = scene()
    on.say(START, on.use("a"), on.use("b"), STOP)
    await on.call("c1", "a")
    assert on.due == ["a", "b"]
    await on.bring("a", "b")
    assert on.due == [] and list(on.replies) == ["c1"]
    on.say(ToolResult(tool_use_id="a", content="a"))
    await on.call("c2", "b")
    assert on.replies["c2"] == ToolReply("b") and on.due == []


async def test_a_cli_that_tells_no_ids_is_matched_by_name_and_input(scene: Any) -> None:
    on = scene(tells_ends=False)
    on.say(on.use("item_1", n=1), on.use("item_2", n=2))
    await on.call("c2", None, n=2)
    await on.call("c1", "other", n=1)
    await on.bring("item_1", "item_2")
    assert {name: reply.content for name, reply in on.replies.items()} == {"c1": "item_1", "c2": "item_2"}


async def test_a_backend_that_tells_no_ends_of_messages_has_a_round_at_once(scene: Any) -> None:
    on = scene(tells_ends=False)
    on.say(START, on.use("a"))
    await on.call("c1", "a")
    assert on.due == ["a"]


async def test_the_end_of_a_message_that_is_lost_is_waited_for_a_while(scene: Any, autojump_clock: Any) -> None:
    on = scene()
    on.say(START, on.use("a"))
    await on.call("c1", "a")
    assert on.due == [] and on.calls.deadline == trio.current_time() + WHOLE_S
    await trio.sleep(WHOLE_S)
    assert on.due == ["a"]


async def test_a_tool_that_runs_here_is_waited_for_as_long_as_it_runs(scene: Any, nursery: trio.Nursery) -> None:
    on, gate = scene(), trio.Event()
    on.say(START, on.use("x", "add", n=1), on.use("a"), STOP)

    async def work(_call: ToolCall) -> ToolReply:
        await gate.wait()
        return ToolReply("done")

    async def run() -> None:
        on.replies["cx"] = await on.calls.run(ToolCall("s", "cx", "add", {"n": 1}, "t1", "x"), work)

    nursery.start_soon(run)
    await on.call("c1", "a")
    assert on.due == [] and on.calls.deadline == float("inf")
    gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert on.due == ["a"] and on.replies == {"cx": ToolReply("done")}
    again = await on.calls.run(ToolCall("s", "cx", "add", {"n": 1}, "t1", "x"), work)
    assert again == ToolReply("done")


async def test_a_tool_whose_call_does_not_come_runs_in_the_next_round(
    scene: Any, nursery: trio.Nursery, autojump_clock: Any
) -> None:
    on, ran = scene(), []
    on.say(START, on.use("a"), on.use("x", "add"), STOP)
    await on.call("c1", "a")
    assert on.due == []
    await trio.sleep(BESIDE_S)
    assert on.due == ["a"]
    on.calls.pause()

    async def work(_call: ToolCall) -> ToolReply:
        ran.append("x")
        return ToolReply("done")

    nursery.start_soon(on.calls.run, ToolCall("s", "cx", "add", {}, "t1", "x"), work)
    await trio.testing.wait_all_tasks_blocked()
    assert ran == [], "the chat may be parked just now"
    await on.bring("a")
    assert ran == ["x"]


async def test_a_call_that_was_taken_back_waits_no_more(scene: Any) -> None:
    on = scene()
    said = AssistantMessage(
        message_id="m1", blocks=(Block(kind="tool_use", tool_use_id="a", name="mcp__clisup__ask", input={}),)
    )
    on.say(START, said, on.use("a"), TakenBack(message_id="m1", from_index=0, reason="cut"))
    await on.call("c1", "a")
    assert on.due == [] and on.calls.deadline == float("inf")


async def test_a_sub_agents_call_ends_the_answer_as_well(scene: Any) -> None:
    on = scene()
    on.say(START, ToolUse(tool_use_id="agent", name="Task", input={}), STOP)
    on.say(MessageStart(message_id="m2", parent_tool_use_id="agent"), on.use("a", parent="agent"))
    await on.call("c1", "a")
    assert on.due == []
    on.say(MessageStop(message_id="m2", parent_tool_use_id="agent"))
    assert on.due == ["a"]
    (done,) = [event for event in on.reader.pause(on.calls.due()) if isinstance(event, Finished)]
    assert [call.id for call in done.completion.tool_calls] == ["a"]
    assert not any(call.name == "ask" for message in done.completion.messages for call in message.tool_uses)

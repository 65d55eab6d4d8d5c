"""Tools that the caller runs, with each CLI: the answer ends at its calls, and the results go on with the same turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from clisup.llm.answers import Completion, Finished
from clisup.llm.chat import ChatOptions
from clisup.llm.failures import StructureError
from clisup.llm.messages import Message, ToolResultBlock
from clisup.llm.models import Model, resolve
from clisup.llm.sessions.caller_tools import PARKED
from clisup.llm.sessions.opening import PLAIN_SYSTEM
from clisup.llm.tools import ToolDefinition
from tests.e2e.tools.stage import ADD, CLIS, LIMIT_S, Stage

pytestmark = pytest.mark.e2e
LOOK_UP = ToolDefinition("look_up", "Look a word up.", {"type": "object", "properties": {}})
SCRIPT = [[("look_up", {"n": 1}), ("look_up", {"n": 2})], [("add", {"a": 2, "b": 3})], [("look_up", {"n": 3})]]


def model_of(stage: Stage) -> Model:
    return resolve(stage.lab.backend, socket=stage.lab.socket, cwd=str(stage.lab.cwd), **stage.options)


def answers(done: Completion) -> Message:
    return Message.user(
        [ToolResultBlock(tool_use_id=call.id, content=f"word {call.input['n']}") for call in done.tool_calls]
    )


def held(messages: list[Message], inputs: list[int], ends: list[Completion]) -> None:
    """Each call was asked for once and has its result, and all of it was one turn."""
    assert sorted(inputs) == [1, 2, 3]
    called = [call for message in messages for call in message.tool_uses]
    found = [block for message in messages for block in message.content if isinstance(block, ToolResultBlock)]
    assert sorted(call.name for call in called) == ["add", "look_up", "look_up", "look_up"]
    assert sorted(block.text for block in found) == ["5", "word 1", "word 2", "word 3"]
    assert {call.id for call in called} == {block.tool_use_id for block in found}
    assert ends[-1].text == "Done."
    assert len({(end.session_id, end.turn_id) for end in ends}) == 1
    assert (ends[-1].usage.output_tokens or 0) > 0


@pytest.mark.parametrize("kind", CLIS)
def test_the_caller_runs_tools_in_a_chat(stage: Callable[..., Stage], kind: str) -> None:
    on = stage(kind, SCRIPT)

    async def main() -> None:
        prompt: Any = on.prompt
        ends: list[Completion] = []
        messages: list[Message] = []
        with trio.fail_after(LIMIT_S):
            async with model_of(on).chat(ChatOptions(tools=[LOOK_UP, ADD])) as chat:
                while not ends or ends[-1].tool_calls:
                    events = [event async for event in chat.stream(prompt)]
                    assert isinstance(events[-1], Finished)
                    ends.append(events[-1].completion)
                    prompt = answers(ends[-1])
                    messages += [*ends[-1].messages, prompt]
        held(messages, [call.input["n"] for end in ends for call in end.tool_calls], ends)

    trio.run(main)


@pytest.mark.parametrize("kind", CLIS)
def test_the_caller_runs_tools_between_two_calls(stage: Callable[..., Stage], kind: str) -> None:
    on = stage(kind, SCRIPT)

    async def main() -> None:
        messages = [Message.user(on.prompt)]
        ends: list[Completion] = []
        with trio.fail_after(LIMIT_S):
            while not ends or ends[-1].tool_calls:
                ends.append(await model_of(on).complete(messages, tools=[LOOK_UP, ADD]))
                messages += ends[-1].messages
                if ends[-1].tool_calls:
                    messages.append(answers(ends[-1]))
        held(messages, [call.input["n"] for end in ends for call in end.tool_calls], ends)
        assert len(PARKED) == 0

    trio.run(main)


@pytest.mark.parametrize("kind", ["claude", "claude-live"])
def test_a_value_is_asked_for_without_claudes_tools_and_system_prompt(stage: Callable[..., Stage], kind: str) -> None:
    on = stage(kind, [])

    async def main() -> None:
        with trio.fail_after(LIMIT_S):
            with pytest.raises(StructureError):
                await model_of(on).structured("Numbers?", list[int], repairs=0)

    trio.run(main)
    body = on.lab.api.main_requests[0].body
    offered = {tool["name"] for tool in body["tools"]}  # 2.1.330 has a placeholder among them
    assert "StructuredOutput" in offered and not offered & {"Bash", "Edit", "Read", "Write", "Task", "Agent"}
    assert PLAIN_SYSTEM in json.dumps(body["system"])

"""An agent loop that this program owns: the model asks for tools, the program runs them when and how it likes.

    python llm_own_loop.py claude/haiku "What is the weather in Oslo and in Rome?"

With an API backend ("anthropic-api/claude-opus-5-5") each request is a turn. The turn of a CLI waits while the tools run.
"""

import sys

import trio

from clisup.llm import FinishReason, Message, ToolResultBlock, ToolUseBlock, resolve

WEATHER = {"oslo": "4 degrees, rain", "rome": "19 degrees, sun"}
TOOLS = [
    {
        "name": "weather",
        "description": "The weather of a city now.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
MAX_ROUNDS = 10


def run(call: ToolUseBlock) -> ToolResultBlock:
    """Whatever a tool is here: a function, a queue, a human."""
    found = WEATHER.get(str(call.input.get("city")).lower())
    return ToolResultBlock(tool_use_id=call.id, content=found or "no such city", is_error=found is None)


async def main(model: str, prompt: str) -> None:
    messages = [Message.user(prompt)]
    for _ in range(MAX_ROUNDS):
        done = await resolve(model).complete(messages, tools=TOOLS)
        messages += done.messages
        if done.finish_reason is not FinishReason.TOOL_CALLS:
            break
        results = [run(call) for call in done.tool_calls]
        for call, result in zip(done.tool_calls, results, strict=True):
            print(f"{call.name} {call.input}: {result.text}")
        messages.append(Message.user(results))
    print(done.text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    trio.run(main, sys.argv[1], sys.argv[2])

"""The model's view of some turns, by their marks: as messages, as the JSON of an API's request, and as lines for people. Pure.

`estimate_tokens` decides about edits of a conversation, and is not the number on the bill. A text counts as its UTF-8 bytes divided
by `BYTES_PER_TOKEN`. English prose has about 4 bytes a token, code and JSON 3 to 3.5. 3.5 overestimates prose, which is the safe
side for a limit. Other scripts have more bytes a character, and about as many more tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm.answers import FinishReason, sum_of_known
from clisup.llm.chat import SessionBudget
from clisup.llm.conversation.nodes import Call, Node, Step, SubAgentDelegation, Turn, walk, with_calls
from clisup.llm.failures import BudgetExhausted
from clisup.llm.histories import NO_ANSWER, NO_PROMPT, NO_RESULT, says_something, valid_history
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.tools import Tool, ToolDefinition

INPUT_CHARS = 200
"""Characters that stay of a long text in the input of a summarized call."""


def context_of(turns: Iterable[Turn]) -> tuple[Message, ...]:
    """Return the messages that a model sees of these turns: a valid history, empty or ending with the model.

    The work of sub-agents is left out. Their calls and reports stay, because the model saw these. Thinking is left out of a step
    with changed calls, and if two steps become one message.
    """
    return valid_history(messages_of(turns))


def messages_of(turns: Iterable[Turn], *, ended: bool = True) -> Iterator[Message]:
    """Return the messages of the turns. `ended=False` returns the messages after the prompt of an unfinished turn."""
    for turn in turns:
        if not ended:
            yield from (message for step in turn.steps for message in _of_step(step))
        elif turn.include_in_context:
            yield from _of_turn(turn)


def _of_turn(turn: Turn) -> Iterator[Message]:
    yield Message(role="user", content=turn.prompt.content or (TextBlock(text=NO_PROMPT),))
    if turn.summary is not None:
        messages = [Message.assistant(turn.summary or NO_ANSWER)]
    else:
        messages = [message for step in turn.steps for message in _of_step(step)]
        if not messages or messages[-1].role == "user" or not says_something(messages[-1]):
            messages.append(Message.assistant(NO_ANSWER))
    if turn.cache:
        messages[-1] = _marked(messages[-1])
    yield from messages


def _of_step(step: Step) -> Iterator[Message]:
    sent = [call for call in step.calls if call.include_in_context]
    whole = len(sent) == len(step.calls) and all(call.summary is None for call in sent)
    said: list[Block] = []
    results: list[Block] = []
    for part in step.said:
        if isinstance(part, TextBlock):
            said.append(part)
        elif isinstance(part, ThinkingBlock):
            if whole:
                said.append(part)
        elif part.include_in_context:
            use, result = _pair(part)
            said.append(use)
            results.append(result)
    if said:
        yield Message(role="assistant", content=tuple(said))
    if results:
        yield Message(role="user", content=tuple(results))


def _pair(call: Call) -> tuple[ToolUseBlock, ToolResultBlock]:
    """Return a call and its result. A summary replaces the result: a call in prose would teach the model to call in prose."""
    input_, result = call.input, call.result or ToolResultBlock(tool_use_id=call.id, content=NO_RESULT, is_error=True)
    if call.summary is not None:
        input_ = {name: _short(value) for name, value in input_.items()}
        result = ToolResultBlock(tool_use_id=call.id, content=call.summary or "(left out)", is_error=result.is_error)
    return ToolUseBlock(id=call.id, name=call.name or "unknown", input=input_), result


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > INPUT_CHARS:
        return f"{value[:INPUT_CHARS]}... ({len(value) - INPUT_CHARS} characters left out)"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) <= INPUT_CHARS else _short(text)
    return value


def _marked(message: Message) -> Message:
    *rest, last = message.content
    if isinstance(last, ThinkingBlock):
        return message
    return Message(role=message.role, content=(*rest, last.model_copy(update={"cache": True})))


def waiting_calls(turns: Sequence[Turn]) -> tuple[ToolUseBlock, ...]:
    """Return the calls of the last turn that wait for the caller's results."""
    if not turns or turns[-1].finish_reason is not FinishReason.TOOL_CALLS or turns[-1].outcome != "completed":
        return ()
    return tuple(
        ToolUseBlock(id=call.id, name=call.name, input=call.input)
        for call in walk(turns[-1:])
        if not isinstance(call, Turn) and _open(call)
    )


def history_and_results(
    turns: Sequence[Turn], results: Mapping[str, ToolResultBlock]
) -> tuple[tuple[Message, ...], Message]:
    """Return the history up to the calls, and the prompt with the results, for a new chat."""
    told = _answered(turns[-1], results)
    *history, prompt = valid_history([*messages_of(turns[:-1]), told.prompt, *messages_of((told,), ended=False)])
    return tuple(history), prompt


def joined(before: Turn, after: Turn, results: Mapping[str, ToolResultBlock]) -> Turn:
    """Return the turn with the part after the results."""
    told = _answered(before, results)
    return after.model_copy(
        update={
            "id": before.id,
            "at": before.at,
            "prompt": before.prompt,
            "cache": before.cache,
            "steps": (*told.steps, *after.steps),
            "include_in_context": True,
            "usage": before.usage + after.usage,
            "cost": sum_of_known((before.cost, after.cost)),
            "model": after.model or before.model,
            "session_id": after.session_id or before.session_id,
            "turn_id": after.turn_id or before.turn_id,
        }
    )


def _answered(turn: Turn, results: Mapping[str, ToolResultBlock]) -> Turn:
    def answered(call: Call) -> Call:
        result = results.get(call.id)
        return call if result is None or not _open(call) else call.model_copy(update={"result": result})

    return with_calls(turn, answered, deep=True)


def _open(call: Call) -> bool:
    return call.result is None and bool(call.name)


BYTES_PER_TOKEN = 3.5
IMAGE_TOKENS = 1600
"""Tokens of the largest image that Anthropic's API does not scale down (width x height / 750)."""
MESSAGE_TOKENS = 4
"""Tokens of a message or tool call beside its text."""


def text_tokens(text: str) -> int:
    """Estimate a text. Unpaired surrogates count, too."""
    return math.ceil(len(text.encode(errors="surrogatepass")) / BYTES_PER_TOKEN)


def estimate_tokens(
    messages: Iterable[Message], *, system: str | None = None, tools: Sequence[Tool | ToolDefinition] = ()
) -> int:
    """Estimate messages, system prompt and descriptions of tools, without a CLI's own system prompt and tools."""
    total = text_tokens(system) if system else 0
    for tool in tools:
        total += (
            MESSAGE_TOKENS + text_tokens(tool.name) + text_tokens(tool.description) + _json_tokens(tool.input_schema)
        )
    for message in messages:
        total += MESSAGE_TOKENS + sum(block_tokens(block) for block in message.content)
    return total


def block_tokens(block: Block) -> int:
    """Estimate one block."""
    if isinstance(block, TextBlock | ThinkingBlock):
        return text_tokens(block.text)
    if isinstance(block, ImageBlock):
        return IMAGE_TOKENS
    if isinstance(block, ToolUseBlock):
        return MESSAGE_TOKENS + text_tokens(block.name) + _json_tokens(block.input)
    return MESSAGE_TOKENS + _result_tokens(block)


def _result_tokens(block: ToolResultBlock) -> int:
    if isinstance(block.content, str):
        return text_tokens(block.content)
    return sum(block_tokens(part) for part in block.content)


def _json_tokens(value: Any) -> int:
    return text_tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


LINE_CHARS = 100


def outline(turns: Iterable[Turn]) -> str:
    """Return the turns with their estimated size, and their calls below. Calls of sub-agents are indented further.

    turn 4f2a completed, 310 tokens: What is in this directory?
      Bash {"command": "ls"}: README.md
      Agent (Explore) {"prompt": "Look around."} [summed up]: Nothing to see.
        Read {"path": "x"} [failed]: no such file
    """
    return "\n".join(line for turn in turns for line in _turn_lines(turn))


def _turn_lines(turn: Turn) -> Iterator[str]:
    tokens = estimate_tokens(context_of((turn,)))
    yield f"turn {turn.id[:8]} {turn.outcome}, {tokens} tokens{_marks(turn)}: {_one_line(turn.prompt.text)}"
    yield from _call_lines(turn.steps, "  ")


def _call_lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        for call in step.calls:
            kind = f" ({call.agent})" if isinstance(call, SubAgentDelegation) and call.agent != call.name else ""
            given = json.dumps(call.input, ensure_ascii=False, default=str)
            failed = " [failed]" if call.failed else ""
            answer = "no answer" if call.result is None else call.result.text
            yield f"{indent}{call.name}{kind} {_one_line(given)}{failed}{_marks(call)}: {_one_line(answer)}"
            if isinstance(call, SubAgentDelegation):
                yield from _call_lines(call.steps, indent + "  ")


def _marks(node: Node) -> str:
    return " [left out]" if not node.include_in_context else " [summed up]" if node.summary is not None else ""


def _one_line(text: str) -> str:
    """Return the text in one line, without control characters."""
    flat = "".join(char if char.isprintable() else " " for char in " ".join(text[: 4 * LINE_CHARS].split()))
    return flat if len(flat) <= LINE_CHARS else flat[: LINE_CHARS - 3] + "..."


WireFormat = Literal["anthropic", "openai"]

CACHE_MARKERS = 4
"""Most cache markers of a request to Anthropic's API, with those of system prompt and tools."""


def to_wire_messages(
    conversation: Iterable[Turn] | Iterable[Message],
    format: WireFormat,  # noqa: A002 - the word of the field
    *,
    markers: int = CACHE_MARKERS,
) -> list[JsonObject]:
    """Return turns or messages as the `messages` of an API's request: `"anthropic"` (Messages) or `"openai"` (Chat Completions).

    The history becomes valid first. A system prompt goes beside the messages (Anthropic), or before them as
    `{"role": "system", ...}` (OpenAI). With `"anthropic"`, the last `markers` blocks with `cache` get `cache_control`. `"openai"`
    has no markers and no thinking. Thinking without a signature is left out. Raises `UsageError` for another format.
    """
    if format not in get_args(WireFormat):
        raise UsageError(f"{format!r} is not a format of messages; there are {' and '.join(get_args(WireFormat))}")
    parts = list(conversation)
    turns = [part for part in parts if isinstance(part, Turn)]
    messages = context_of(turns) if turns else tuple(part for part in parts if isinstance(part, Message))
    messages = valid_history(_without_thinking(messages, signed=format == "anthropic"))
    if format == "anthropic":
        return _anthropic(messages, markers)
    return [wire for message in messages for wire in _openai(message)]


def _without_thinking(messages: Iterable[Message], *, signed: bool) -> Iterator[Message]:
    """Leave thinking out. `signed` keeps thinking with its maker's proof."""
    for message in messages:
        kept = (b for b in message.content if not isinstance(b, ThinkingBlock) or (signed and b.signature))
        yield Message(role=message.role, content=tuple(kept))


def _anthropic(messages: Sequence[Message], markers: int) -> list[JsonObject]:
    contents = [[(block, _anthropic_block(block)) for block in message.content] for message in messages]
    marked = [
        part for content in contents for block, part in content if not isinstance(block, ThinkingBlock) and block.cache
    ]
    for part in marked[-markers:] if markers > 0 else ():
        part["cache_control"] = {"type": "ephemeral"}
    return [
        {"role": message.role, "content": [part for _, part in content]}
        for message, content in zip(messages, contents, strict=True)
    ]


def _anthropic_block(block: Block) -> JsonObject:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ThinkingBlock):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if isinstance(block, ImageBlock):
        source = {"type": "base64", "media_type": block.media_type, "data": block.data}
        return {"type": "image", "source": source}
    if isinstance(block, ToolUseBlock):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    content = block.content if isinstance(block.content, str) else [_anthropic_block(part) for part in block.content]
    wire: JsonObject = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
    return wire | {"is_error": True} if block.is_error else wire


def _openai(message: Message) -> Iterator[JsonObject]:
    if message.role == "assistant":
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.input, ensure_ascii=False)},
            }
            for call in message.tool_uses
        ]
        yield {"role": "assistant", "content": message.text or None} | ({"tool_calls": calls} if calls else {})
        return
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        text = result.text or "(no text)"
        yield {
            "role": "tool",
            "tool_call_id": result.tool_use_id,
            "content": f"Error: {text}" if result.is_error else text,
        }
    # a message of a tool takes text only: images of results go into the user's message after it
    shown = [part for result in results if not isinstance(result.content, str) for part in result.content]
    own = [block for block in message.content if isinstance(block, TextBlock | ImageBlock)]
    parts = [_openai_part(part) for part in (*(p for p in shown if isinstance(p, ImageBlock)), *own)]
    if parts:
        only_text = len(parts) == 1 and parts[0]["type"] == "text"
        yield {"role": "user", "content": parts[0]["text"] if only_text else parts}


def _openai_part(block: TextBlock | ImageBlock) -> Mapping[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{block.data}"}}


def left_of(budget: SessionBudget, turns: Sequence[Turn]) -> SessionBudget:
    """Return the budget without the use of these turns. Raises `BudgetExhausted` if nothing is left of a limit.

    The daemon counts for each session, and an edited conversation goes on in a new one. Unknown use is not subtracted.
    """
    used = {
        "usd": sum(turn.cost.usd for turn in turns if turn.cost is not None),
        "tokens": sum(turn.usage.total_tokens or 0 for turn in turns),
        "turns": len(turns),
        "wall_s": sum(_seconds(turn) for turn in turns),
    }
    for which, limit in budget.to_wire().items():
        if used[which] >= limit:
            raise BudgetExhausted(
                f"the conversation's budget is used up: {used[which]:.6g} of {limit:g} {which}",
                hint="raise the limit",
                which=which,
                limit=limit,
                used=used[which],
            )
    left: dict[str, Any] = {which: limit - used[which] for which, limit in budget.to_wire().items()}
    return SessionBudget(**left)


def _seconds(turn: Turn) -> float:
    try:
        took = datetime.fromisoformat(turn.ended_at or "") - datetime.fromisoformat(turn.at)
    except ValueError:
        return 0.0
    return max(0.0, took.total_seconds())

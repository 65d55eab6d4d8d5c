"""Estimate of tokens, and the rest of a session budget. Pure.

The estimate decides about edits of a conversation, and is not the number on the bill. A text counts as its UTF-8 bytes divided by
`BYTES_PER_TOKEN`. English prose has about 4 bytes a token, code and JSON 3 to 3.5. 3.5 overestimates prose, which is the safe side
for a limit. Other scripts have more bytes a character, and about as many more tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from clisup.llm.chat import SessionBudget
from clisup.llm.conversation.nodes import Turn
from clisup.llm.failures import BudgetExhausted
from clisup.llm.messages import Block, ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from clisup.llm.tools.definitions import Tool, ToolDefinition

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


def left_of(budget: SessionBudget, turns: Iterable[Turn]) -> SessionBudget:
    """Return the budget without the use of these turns. Raises `BudgetExhausted` if nothing is left of a limit.

    The daemon counts for each session, and an edited conversation goes on in a new one. Unknown use is not subtracted.
    """
    turns = tuple(turns)
    used: dict[str, float] = {
        "usd": sum(turn.cost.usd for turn in turns if turn.cost is not None),
        "tokens": sum(turn.usage.total_tokens or 0 for turn in turns),
        "turns": len(turns),
        "wall_s": sum(_seconds(turn) for turn in turns),
    }
    left = {which: limit - used[which] for which, limit in budget.to_wire().items()}
    for which, rest in left.items():
        if rest <= 0:
            limit = budget.to_wire()[which]
            raise BudgetExhausted(
                f"the conversation's budget is used up: {used[which]:.6g} of {limit:g} {which}",
                hint="raise the limit",
                which=which,
                limit=limit,
                used=used[which],
            )
    return SessionBudget(
        usd=left.get("usd"),
        tokens=None if "tokens" not in left else int(left["tokens"]),
        turns=None if "turns" not in left else int(left["turns"]),
        wall_s=left.get("wall_s"),
    )


def _seconds(turn: Turn) -> float:
    try:
        return max(0.0, (_time(turn.ended_at or "") - _time(turn.at)).total_seconds())
    except ValueError:
        return 0.0


def _time(at: str) -> datetime:
    return datetime.fromisoformat(at)

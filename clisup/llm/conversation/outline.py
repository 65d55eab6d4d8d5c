"""A conversation for people: a line for each node, with what the model sees of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from clisup.llm.conversation.context import context_of
from clisup.llm.conversation.nodes import Node, Step, SubAgentDelegation, Turn
from clisup.llm.conversation.tokens import estimate_tokens

__all__ = ["outline"]

LINE_CHARS = 100


def outline(turns: Iterable[Turn]) -> str:
    """Turns with their estimated size in the context, and below them their calls; those of sub-agents are indented further.

    turn 4f2a completed, 310 tokens: What is in this directory?
      Bash {"command": "ls"}: README.md
      Agent (Explore) {"prompt": "Look around."} [summed up]: Nothing to see.
        Read {"path": "x"} [failed]: no such file
    """
    return "\n".join(line for turn in turns for line in _turn(turn))


def _turn(turn: Turn) -> Iterator[str]:
    tokens = estimate_tokens(context_of((turn,)))
    yield f"turn {turn.id[:8]} {turn.outcome}, {tokens} tokens{_marks(turn)}: {_line(turn.prompt.text)}"
    yield from _calls(turn.steps, "  ")


def _calls(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        for call in step.calls:
            kind = f" ({call.agent})" if isinstance(call, SubAgentDelegation) and call.agent != call.name else ""
            given = json.dumps(call.input, ensure_ascii=False, default=str)
            failed = " [failed]" if call.failed else ""
            answer = "no answer" if call.result is None else call.result.text
            yield f"{indent}{call.name}{kind} {_line(given)}{failed}{_marks(call)}: {_line(answer)}"
            if isinstance(call, SubAgentDelegation):
                yield from _calls(call.steps, indent + "  ")


def _marks(node: Node) -> str:
    return " [left out]" if not node.include_in_context else " [summed up]" if node.summary is not None else ""


def _line(text: str) -> str:
    """The text in one line, without what a terminal would obey."""
    flat = "".join(char if char.isprintable() else " " for char in " ".join(text[: 4 * LINE_CHARS].split()))
    return flat if len(flat) <= LINE_CHARS else flat[: LINE_CHARS - 3] + "..."

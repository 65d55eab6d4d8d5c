"""Asking a chat for a value of a shape: the backend's own way first, else in words; what does not fit is sent back a few times."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic, TypeVar

from clisup.llm.chat import Chat, Completion, FinishReason
from clisup.llm.failures import InvalidRequest, StructureError
from clisup.llm.messages import Message, Prompt, TextBlock, as_messages
from clisup.llm.shapes import Misfit, Shape
from clisup.llm.streams import stream_of

__all__ = ["REPAIRS", "Structured", "ask"]

REPAIRS = 2
"""How often an answer that does not fit is sent back, unless told otherwise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """A value, and the answer that it came in: its `usage`, `cost` and `messages` are those of all tries together."""

    value: T
    completion: Completion
    repairs: int = 0
    """How often an answer had to be sent back."""


async def ask(chat: Chat, prompt: Prompt, shape: Shape[T], *, repairs: int = REPAIRS) -> Structured[T]:
    """Ask for a value of the shape. Raises `StructureError` where no answer fits, and what the chat raises.

    Where the backend has structured output but refuses this very schema, it is asked for in words.
    """
    asking = _Asking(chat, shape)
    *_, said = as_messages(prompt)
    answers: list[Completion] = []
    exchange: list[Message] = []
    problems: tuple[str, ...] = ()
    for attempt in range(max(repairs, 0) + 1):
        if attempt:
            said = _repair(problems)
            exchange.append(said)
        answers.append(await asking.answer(said))
        exchange.extend(answers[-1].messages)
        try:
            value = _value(shape, answers[-1])
        except Misfit as error:
            problems = error.problems
        else:
            return Structured(value, _together(answers, exchange), attempt)
        if answers[-1].finish_reason is FinishReason.REFUSAL:
            break
    raise StructureError(
        f"the answer does not fit what was asked for: {'; '.join(problems)}",
        text=answers[-1].text,
        problems=problems,
        side_effects=any(message.tool_uses for message in exchange),
        completion=_together(answers, exchange),
    )


class _Asking(Generic[T]):
    """One conversation about one value: by the backend's own structured output as long as it takes it, else in words."""

    def __init__(self, chat: Chat, shape: Shape[T]) -> None:
        self._chat, self._shape = chat, shape
        self._native = True

    async def answer(self, prompt: Message) -> Completion:
        """The next answer."""
        if self._native:
            try:
                return await _finished(self._chat, prompt, self._shape.schema)
            except InvalidRequest as error:  # `Unsupported`, or the schema says more than the model's API takes
                if error.side_effects:
                    raise
                self._native = False
        words = TextBlock(text=f"\n\n{self._shape.instruction}")
        return await _finished(self._chat, Message(role="user", content=(*prompt.content, words)), None)


async def _finished(chat: Chat, prompt: Message, schema: dict[str, Any] | None) -> Completion:
    async with stream_of(chat, prompt, output_schema=schema) as events:
        return await events.finish()


def _value(shape: Shape[T], answer: Completion) -> T:
    """Raises `Misfit`."""
    if answer.structured is not None:
        return shape.value_of(answer.structured)
    return shape.value_in(answer.text)


def _together(answers: list[Completion], exchange: list[Message]) -> Completion:
    """The last answer with what all of them took. A cost that is unknown for one is unknown for all."""
    costs = [answer.cost for answer in answers]
    return replace(
        answers[-1],
        usage=reduce(operator.add, (answer.usage for answer in answers)),
        cost=None if None in costs else reduce(operator.add, costs),
        messages=tuple(exchange),
    )


def _repair(problems: tuple[str, ...]) -> Message:
    listed = "\n".join(f"- {problem}" for problem in problems)
    return Message.user(f"That is not what was asked for:\n{listed}\nAnswer again, whole and corrected.")

"""Values from a model: by the backend's own structured output, or else in words. A wrong answer goes back a few times."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Generic, TypeVar

from clisup.client.raw import JsonObject
from clisup.llm.answers import Completion, FinishReason
from clisup.llm.budget import Budget, ask_within
from clisup.llm.chat import Chat
from clisup.llm.failures import InvalidRequest, StructureError
from clisup.llm.messages import Message, Prompt, TextBlock, as_messages
from clisup.llm.shapes import Misfit, Shape

__all__ = ["REPAIRS", "Structured", "TypedQuestion", "ask", "ask_until_it_fits"]

REPAIRS = 2
"""Default number of times that a wrong answer goes back."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """Value with its answer. `usage`, `cost` and `messages` of the completion are those of all attempts together."""

    value: T
    completion: Completion
    repairs: int = 0
    """Number of answers that went back."""


@dataclass(frozen=True, slots=True)
class TypedQuestion(Generic[T]):
    """Question for a value. `name` is the value's name in errors. `read` returns the value of an answer, or raises `Misfit`."""

    name: str
    prompt: Message
    schema: JsonObject
    read: Callable[[Completion], T]


@dataclass(frozen=True, slots=True)
class Fitted(Generic[T]):
    """Value with all answers, the last of which has the value, and all messages after the first prompt."""

    value: T
    answers: tuple[Completion, ...]
    exchange: tuple[Message, ...]


async def ask_until_it_fits(
    chat: Chat, question: TypedQuestion[T], *, repairs: int = REPAIRS, budgets: Sequence[Budget] = (), hint: str = ""
) -> Fitted[T]:
    """Ask until an answer fits. Raises `StructureError` after `repairs` wrong answers, and the exceptions of the chat.

    A backend may refuse the schema, or the chat may move to a model without structured output. The prompt then has the schema.
    """
    answers: list[Completion] = []
    exchange: list[Message] = []
    prompt, native, told = question.prompt, True, False
    while True:
        said = prompt if native or told else _with_schema(prompt, question.schema)
        try:
            schema = question.schema if native else None
            completion = await ask_within(budgets, chat, said, output_schema=schema)
        except InvalidRequest as error:  # `Unsupported`, or the model's API takes no such schema
            if error.side_effects or not native:
                raise
            native = False
            continue
        told = not native
        exchange += [*((said,) if answers else ()), *completion.messages]
        answers.append(completion)
        try:
            return Fitted(question.read(completion), tuple(answers), tuple(exchange))
        except Misfit as misfit:
            problems = misfit.problems
        if len(answers) > max(repairs, 0) or completion.finish_reason is FinishReason.REFUSAL:
            raise StructureError(
                f"the answer does not fit {question.name} ({len(answers)} answers): {'; '.join(problems)}",
                text=completion.text,
                problems=problems,
                hint=hint,
                side_effects=any(message.tool_uses for message in exchange),
                completion=_together(answers, exchange),
            )
        listed = "\n".join(f"- {problem}" for problem in problems)
        prompt = Message.user(f"That is not what was asked for:\n{listed}\nAnswer again, whole and corrected.")


def _with_schema(prompt: Message, schema: JsonObject) -> Message:
    words = (
        "Answer with one JSON object and nothing else: no other words, no Markdown. It has to fit this JSON Schema:\n"
        f"{json.dumps(schema, ensure_ascii=False)}"
    )
    return Message(role="user", content=(*prompt.content, TextBlock(text=f"\n\n{words}")))


async def ask(chat: Chat, prompt: Prompt, shape: Shape[T], *, repairs: int = REPAIRS) -> Structured[T]:
    """Ask a chat for a value of a shape. Raises `StructureError` if no answer fits, and the exceptions of the chat."""

    def read(answer: Completion) -> T:
        return shape.value_in(answer.text) if answer.structured is None else shape.value_of(answer.structured)

    *_, message = as_messages(prompt)
    question = TypedQuestion("the requested form", message, shape.schema, read)
    fitted = await ask_until_it_fits(chat, question, repairs=repairs)
    return Structured(fitted.value, _together(fitted.answers, fitted.exchange), len(fitted.answers) - 1)


def _together(answers: Sequence[Completion], exchange: Sequence[Message]) -> Completion:
    """Return the last answer with the usage and cost of all. One unknown cost makes the sum unknown."""
    costs = [answer.cost for answer in answers]
    return replace(
        answers[-1],
        usage=reduce(operator.add, (answer.usage for answer in answers)),
        cost=None if None in costs else reduce(operator.add, costs),
        messages=tuple(exchange),
    )

"""Values from a model: by the backend's own structured output, or else in words. A wrong answer goes back a few times."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic, Protocol, TypeVar

from clisup.llm.answers import Completion, FinishReason
from clisup.llm.budget import Budget, ask_within
from clisup.llm.chat import Chat
from clisup.llm.failures import InvalidRequest, StructureError
from clisup.llm.messages import Message, Prompt, TextBlock, as_messages
from clisup.llm.shapes import Misfit, Shape

__all__ = ["REPAIRS", "Structured", "ask"]

REPAIRS = 2
"""Default number of times that a wrong answer goes back."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """Value with its answer. `usage`, `cost` and `messages` of the completion are those of all attempts together."""

    value: T
    completion: Completion
    repairs: int = 0
    """Number of answers that went back."""


class AnswerForm(Protocol[T_co]):
    """Form of an answer: the prompts that ask for a value, and the reader of the answer."""

    @property
    def name(self) -> str:
        """The value's name, for errors."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema for the backend's structured output."""

    def prompt(self, *, in_words: bool) -> Prompt:
        """Return the first prompt. With `in_words`, the prompt contains the form."""

    def repair(self, problems: Sequence[str], *, in_words: bool, told: bool) -> Prompt:
        """Return the prompt after a wrong answer. `told`: an earlier prompt contained the form."""

    def read(self, answer: Completion) -> T_co:
        """Return the value. Raises `Misfit`."""


@dataclass(frozen=True, slots=True)
class Fitted(Generic[T]):
    """Value with all answers, the last of which has the value, and all messages after the first prompt."""

    value: T
    answers: tuple[Completion, ...]
    exchange: tuple[Message, ...]


async def ask_form(
    chat: Chat, form: AnswerForm[T], *, repairs: int = REPAIRS, budgets: Sequence[Budget] = (), hint: str = ""
) -> Fitted[T]:
    """Ask until an answer fits. Raises `StructureError` after `repairs` wrong answers, and the exceptions of the chat.

    A backend may refuse the schema, or the chat may move to a model without structured output. The prompts then ask in words.
    """
    answers: list[Completion] = []
    exchange: list[Message] = []
    problems: Sequence[str] = ()
    native, told = True, False
    while True:
        completion = None
        while completion is None:
            prompt = (
                form.repair(problems, in_words=not native, told=told) if answers else form.prompt(in_words=not native)
            )
            try:
                schema = form.schema if native else None
                completion = await ask_within(budgets, chat, prompt, output_schema=schema)
            except InvalidRequest as error:  # `Unsupported`, or the model's API takes no such schema
                if error.side_effects or not native:
                    raise
                native = False
        told = not native
        exchange += [*(as_messages(prompt) if answers else ()), *completion.messages]
        answers.append(completion)
        try:
            return Fitted(form.read(completion), tuple(answers), tuple(exchange))
        except Misfit as misfit:
            problems = misfit.problems
        if len(answers) > max(repairs, 0) or completion.finish_reason is FinishReason.REFUSAL:
            raise StructureError(
                f"the answer does not fit {form.name} ({len(answers)} answers): {'; '.join(problems)}",
                text=completion.text,
                problems=tuple(problems),
                hint=hint,
                side_effects=any(message.tool_uses for message in exchange),
                completion=_together(answers, exchange),
            )


async def ask(chat: Chat, prompt: Prompt, shape: Shape[T], *, repairs: int = REPAIRS) -> Structured[T]:
    """Ask a chat for a value of a shape. Raises `StructureError` if no answer fits, and the exceptions of the chat."""
    *_, message = as_messages(prompt)
    fitted = await ask_form(chat, _ShapeForm(message, shape), repairs=repairs)
    return Structured(fitted.value, _together(fitted.answers, fitted.exchange), len(fitted.answers) - 1)


@dataclass(frozen=True, slots=True)
class _ShapeForm(Generic[T]):
    message: Message
    shape: Shape[T]
    name: str = "the requested form"

    @property
    def schema(self) -> dict[str, Any]:
        return self.shape.schema

    def prompt(self, *, in_words: bool) -> Prompt:
        return self._told(self.message) if in_words else self.message

    def repair(self, problems: Sequence[str], *, in_words: bool, told: bool) -> Prompt:
        listed = "\n".join(f"- {problem}" for problem in problems)
        prompt = Message.user(f"That is not what was asked for:\n{listed}\nAnswer again, whole and corrected.")
        return self._told(prompt) if in_words else prompt

    def read(self, answer: Completion) -> T:
        if answer.structured is not None:
            return self.shape.value_of(answer.structured)
        return self.shape.value_in(answer.text)

    def _told(self, message: Message) -> Message:
        return Message(role="user", content=(*message.content, TextBlock(text=f"\n\n{self.shape.instruction}")))


def _together(answers: Sequence[Completion], exchange: Sequence[Message]) -> Completion:
    """Return the last answer with the usage and cost of all. One unknown cost makes the sum unknown."""
    costs = [answer.cost for answer in answers]
    return replace(
        answers[-1],
        usage=reduce(operator.add, (answer.usage for answer in answers)),
        cost=None if None in costs else reduce(operator.add, costs),
        messages=tuple(exchange),
    )

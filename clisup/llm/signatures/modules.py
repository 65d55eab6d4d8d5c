"""Modules: parts of a program that ask models, made of other modules. `Predict` asks for the outputs of a signature.

A model and budgets apply to all modules that run within `using`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

from clisup.llm.answers import Completion
from clisup.llm.budget import Budget, Spent, admit, distinct
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import usage_error
from clisup.llm.messages import as_messages
from clisup.llm.models import as_model
from clisup.llm.signatures.signature import (
    Answered,
    Signature,
    check_inputs,
    inputs_of,
    outputs_of,
    prompt_of,
    read_answer,
    schema_of_outputs,
)
from clisup.llm.signatures.signature import signature as read_signature
from clisup.llm.structured import REPAIRS, TypedQuestion, ask_until_it_fits
from clisup.model.usage import Usage


class Active(NamedTuple):
    """The nearest model and all surrounding budgets."""

    model: LanguageModel | None = None
    budgets: tuple[Budget, ...] = ()

    def model_to(self, do: str) -> LanguageModel:
        """Return the model. Raises `UsageError` without one; `do` names the purpose, such as `"ask Triage"`."""
        if self.model is None:
            raise usage_error(
                f"cannot {do}: no model is set",
                'give model="claude/opus", or call it within `with using("claude/opus"):`',
            )
        return self.model


_active: ContextVar[Active] = ContextVar("clisup_llm_active", default=Active())  # noqa: B039 (frozen)


def active() -> Active:
    """Return the model and budgets of this task, or of this thread of trio."""
    return _active.get()


@contextmanager
def using(model: LanguageModel | str | None = None, *, budget: Budget | None = None) -> Iterator[Active]:
    """Set the model and add a budget for all modules in the block, and for tasks that start there.

    A model, or a name for `resolve`, replaces the surrounding model. A budget joins the surrounding ones, and each of them is
    charged once for an answer.
    """
    if not isinstance(budget, Budget | None):
        raise usage_error(f"budget= is a Budget, not of type {type(budget).__name__}", "give Budget(usd=...)")
    around = _active.get()
    budgets = around.budgets if budget is None else distinct((*around.budgets, budget))
    token = _active.set(Active(around.model if model is None else as_model(model), budgets))
    try:
        yield _active.get()
    finally:
        _active.reset(token)


class Module:
    """Part of a program: subclasses define `forward`, and callers call the instance. Other modules are attributes.

        class Answer(Module):
            def __init__(self) -> None:
                self.search = Predict(Search)
                self.write = ChainOfThought(Write)

            async def forward(self, question: str) -> str:
                found = await self.search(question=question)
                return (await self.write(question=question, notes=found.notes)).text

    `model` and `budget` apply to the module and all modules that it calls.
    """

    model: LanguageModel | str | None = None
    budget: Budget | None = None

    async def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's work."""
        raise usage_error(f"{type(self).__name__} has no forward()", "define forward()")

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with this module's model and budget."""
        with using(self.model, budget=self.budget):
            return await self.forward(*args, **kwargs)

    def modules(self) -> Iterator[tuple[str, Module]]:
        """Return all modules below with their paths, such as `"search"` or `"steps.0"`."""
        for name, value in vars(self).items():
            parts: Any = (
                value.items()
                if isinstance(value, dict)
                else enumerate(value)
                if isinstance(value, list | tuple)
                else ((None, value),)
            )
            for key, part in parts:
                if isinstance(part, Module):
                    path = name if key is None else f"{name}.{key}"
                    yield path, part
                    yield from ((f"{path}.{below}", module) for below, module in part.modules())


S = TypeVar("S", bound=Signature)


@dataclass(frozen=True, slots=True)
class Prediction(Generic[S]):
    """Typed answer. `completions` are all answers with repairs. The last one fits."""

    value: S
    reasoning: str | None
    completions: tuple[Completion, ...]

    @property
    def usage(self) -> Usage:
        """Usage of all answers together. Unknown is not zero."""
        return self.spent.usage

    @property
    def spent(self) -> Spent:
        """Tokens and cost of all answers, with the number of unknown ones."""
        return sum(map(Spent.of, self.completions), Spent())


class Predict(Module, Generic[S]):
    """Question with a signature: `await Predict(Triage, model=model)(ticket="...")` returns a `Triage`, `run` its `Prediction`.

    Each call opens a chat with `options`, by default without a CLI's own tools (`ChatOptions(cli_tools="default")` keeps them).
    A wrong answer goes back in the same chat, at most `repairs` times; then `StructureError` is raised. `examples` are whole
    instances of the signature for the prompt. `model` may be a name; the default is the nearest `using(model)` or surrounding
    module. Raises `UsageError` for wrong inputs, and `LLMError`s.
    """

    reasoning = False

    @overload
    def __init__(
        self: Predict[Any],
        signature: str,
        /,
        *,
        model: LanguageModel | str | None = None,
        budget: Budget | None = None,
        options: ChatOptions | None = None,
        examples: Sequence[Signature] = (),
        repairs: int = REPAIRS,
    ) -> None: ...

    @overload
    def __init__(
        self,
        signature: type[S],
        /,
        *,
        model: LanguageModel | str | None = None,
        budget: Budget | None = None,
        options: ChatOptions | None = None,
        examples: Sequence[S] = (),
        repairs: int = REPAIRS,
    ) -> None: ...

    def __init__(
        self,
        signature: type[S] | str,
        /,
        *,
        model: LanguageModel | str | None = None,
        budget: Budget | None = None,
        options: ChatOptions | None = None,
        examples: Sequence[Any] = (),
        repairs: int = REPAIRS,
    ) -> None:
        made = read_signature(signature) if isinstance(signature, str) else signature
        if not (isinstance(made, type) and issubclass(made, Signature)):
            raise usage_error(
                f"{getattr(made, '__name__', repr(made))} is not a signature",
                'write "question -> answer", or a class: class Answer(Signature): ...',
            )
        self.signature = cast("type[S]", made)
        self.model, self.budget, self.options = model, budget, options or ChatOptions()
        self.examples, self.repairs = tuple(examples), repairs
        names = [*inputs_of(made), *outputs_of(made)]
        for example in self.examples:
            if lacking := [name for name in names if not (isinstance(example, Signature) and hasattr(example, name))]:
                raise usage_error(
                    f"the example of type {type(example).__name__} has no {', '.join(lacking)}",
                    "give whole instances of the signature",
                )

    async def __call__(self, **inputs: Any) -> S:
        """Return the inputs and outputs, typed."""
        return (await self.run(**inputs)).value

    async def run(self, **inputs: Any) -> Prediction[S]:
        """Return the outputs with their reasoning and completions."""
        given = check_inputs(self.signature, inputs)
        with using(self.model, budget=self.budget) as here:
            model = here.model_to(f"ask {self.signature.__name__}")
            left = admit(here.budgets)
            options = replace(self.options.plain(f"ask {self.signature.__name__}"), budget=self.options.budget or left)
            async with model.chat(options) as chat:
                return await self._ask(chat, given)

    async def run_in(self, chat: Chat, **inputs: Any) -> Prediction[S]:
        """Ask in an open chat, after its conversation."""
        given = check_inputs(self.signature, inputs)
        with using(budget=self.budget):
            return await self._ask(chat, given)

    async def _ask(self, chat: Chat, given: dict[str, Any]) -> Prediction[S]:
        adds_reasoning = self.reasoning and "reasoning" not in outputs_of(self.signature)
        (prompt,) = as_messages(prompt_of(self.signature, given, examples=self.examples, reasoning=adds_reasoning))

        def read(answer: Completion) -> Answered:
            return read_answer(self.signature, given, answer.text, answer.structured, reasoning=adds_reasoning)

        question = TypedQuestion(
            self.signature.__name__, prompt, schema_of_outputs(self.signature, reasoning=adds_reasoning), read
        )
        hint = "describe the outputs better, give examples=, or allow more repairs="
        budgets = active().budgets
        fitted = await ask_until_it_fits(chat, question, repairs=self.repairs, budgets=budgets, hint=hint)
        value = cast("S", fitted.value.value)
        own = self.reasoning and not adds_reasoning
        return Prediction(value, getattr(value, "reasoning", None) if own else fitted.value.reasoning, fitted.answers)


class ChainOfThought(Predict[S]):
    """`Predict` with reasoning: the model writes `Prediction.reasoning` before the outputs.

    An output `reasoning` of the signature stays the signature's own.
    """

    reasoning = True

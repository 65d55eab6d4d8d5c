"""`Module`: parts of a program that ask models, put together from others. A model and budgets hold for all that runs within."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from clisup.errors import UsageError
from clisup.llm.asking import distinct
from clisup.llm.budget import Budget
from clisup.llm.chat import LanguageModel, checked_model

__all__ = ["Active", "Module", "active", "using"]


class Active(NamedTuple):
    """What holds here: the nearest model, and every budget around."""

    model: LanguageModel | None = None
    budgets: tuple[Budget, ...] = ()

    def model_to(self, do: str) -> LanguageModel:
        """The model, to `do` something with: `"ask Triage"`. Raises `UsageError` where none is set."""
        if self.model is None:
            raise UsageError(
                f"cannot {do}, because no model is set",
                kind="usage",
                hint='give model="claude/opus", or call it within: with using("claude/opus"):',
            )
        return self.model


_active: ContextVar[Active] = ContextVar("clisup_llm_active", default=Active())  # noqa: B039 (frozen)


def active() -> Active:
    """What holds in this task, or thread that trio made."""
    return _active.get()


@contextmanager
def using(model: LanguageModel | str | None = None, *, budget: Budget | None = None) -> Iterator[Active]:
    """`with using(model, budget=budget):` holds for all modules that are called in the block, also in tasks begun there.

    A model, or the name of one for `resolve`, replaces the one around; a budget is added to those around, and an answer is charged
    once to each.
    """
    if isinstance(model, str):
        from clisup.llm.models import resolve  # all of the client: who reads a trace has no use for it

        model = resolve(model)
    elif model is not None:
        checked_model(model)
    if not isinstance(budget, Budget | None):
        raise UsageError(
            f"cannot hold anything to a budget of type {type(budget).__name__}",
            kind="usage",
            hint="give Budget(usd=...)",
        )
    around = _active.get()
    budgets = around.budgets if budget is None else distinct((*around.budgets, budget))
    token = _active.set(Active(around.model if model is None else model, budgets))
    try:
        yield _active.get()
    finally:
        _active.reset(token)


class Module:
    """A part of a program: write `forward`, call the instance. Other modules are attributes of it.

        class Answer(Module):
            def __init__(self) -> None:
                self.search = Predict(Search)
                self.write = ChainOfThought(Write)

            async def forward(self, question: str) -> str:
                found = await self.search(question=question)
                return (await self.write(question=question, notes=found.notes)).text

    Where `model` or `budget` is set, it holds for the module and all that it calls.
    """

    model: LanguageModel | str | None = None
    budget: Budget | None = None

    async def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module does."""
        raise UsageError(
            f"cannot call {type(self).__name__}, because it has no forward()", kind="usage", hint="write it"
        )

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with this module's model and budget."""
        with using(self.model, budget=self.budget):
            return await self.forward(*args, **kwargs)

    def modules(self) -> Iterator[tuple[str, Module]]:
        """All modules below this one with their paths, as `("search", ...)`, `("steps.0", ...)`: to give each a model or a budget."""
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

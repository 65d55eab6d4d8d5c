"""`Predict` asks a model for the outputs of a signature, and has it put right what does not fit; `ChainOfThought` has it think first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast, overload

from clisup.errors import UsageError
from clisup.llm.asking import admit, ask
from clisup.llm.budget import Budget
from clisup.llm.chat import Chat, ChatOptions, Completion, FinishReason, LanguageModel
from clisup.llm.failures import InvalidRequest, StructureError
from clisup.llm.messages import Prompt
from clisup.llm.signatures.adapter import NotWhatWasAsked, check_inputs, form_of, prompt_of, read_answer, repair_prompt
from clisup.llm.signatures.module import Module, active, using
from clisup.llm.signatures.signature import Signature, inputs_of, outputs_of, schema_of_outputs
from clisup.llm.signatures.signature import signature as read_signature
from clisup.llm.spending import Spent
from clisup.model.usage import Usage

__all__ = ["ChainOfThought", "Predict", "Prediction"]

S = TypeVar("S", bound=Signature)


@dataclass(frozen=True, slots=True)
class Prediction(Generic[S]):
    """An answer with what it took. `completions` are all answers, repairs included; the last one is the one that fits."""

    value: S
    reasoning: str | None
    completions: tuple[Completion, ...]

    @property
    def usage(self) -> Usage:
        """Of all answers together; unknown is not zero."""
        return self.spent.usage

    @property
    def spent(self) -> Spent:
        """Tokens and cost of all answers, with how many were not told."""
        return sum(map(Spent.of, self.completions), Spent())


class Predict(Module, Generic[S]):
    """`await Predict(Triage, model=model)(ticket="...")` gives a whole `Triage`; `run` gives the `Prediction` around it.

    Each call opens a chat of its own, with `options`, without a CLI's own tools where that can be (`ChatOptions(cli_tools="default")`
    leaves them in). An answer that does not fit is told so in the same chat, `repairs` times at
    most; then `StructureError`. `examples` are whole instances of the signature, told before the question. `model` may be a name;
    where none is given, the nearest `using(model)` or module around has it. Raises `UsageError` for wrong inputs,
    `BudgetExhausted`, and `LLMError`s.
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
        repairs: int = 2,
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
        repairs: int = 2,
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
        repairs: int = 2,
    ) -> None:
        made = read_signature(signature) if isinstance(signature, str) else signature
        if not (isinstance(made, type) and issubclass(made, Signature)):
            raise UsageError(
                f"cannot ask {getattr(made, '__name__', repr(made))}, because it is no signature",
                kind="usage",
                hint='write "question -> answer", or a class: class Answer(Signature): ...',
            )
        self.signature = cast("type[S]", made)
        self.model, self.budget, self.options = model, budget, options or ChatOptions()
        self.examples, self.repairs = tuple(examples), repairs
        names = [*inputs_of(made), *outputs_of(made)]
        for example in self.examples:
            if lacking := [name for name in names if not (isinstance(example, Signature) and hasattr(example, name))]:
                raise UsageError(
                    f"cannot show the model an example of type {type(example).__name__}, because it has no {', '.join(lacking)}",
                    kind="usage",
                    hint="give whole instances of the signature",
                )

    async def __call__(self, **inputs: Any) -> S:
        """The inputs and outputs, typed."""
        return (await self.run(**inputs)).value

    async def run(self, **inputs: Any) -> Prediction[S]:
        """The same with its reasoning and its completions."""
        given = check_inputs(self.signature, inputs)
        with using(self.model, budget=self.budget) as here:
            model = here.model_to(f"ask {self.signature.__name__}")
            left = admit(here.budgets)
            options = replace(self.options.plain(f"ask {self.signature.__name__}"), budget=self.options.budget or left)
            async with model.chat(options) as chat:
                return await self._ask(chat, given)

    async def run_in(self, chat: Chat, **inputs: Any) -> Prediction[S]:
        """Ask in a chat that is open already, after all that was said there."""
        given = check_inputs(self.signature, inputs)
        with using(budget=self.budget):
            return await self._ask(chat, given)

    async def _ask(self, chat: Chat, given: dict[str, Any]) -> Prediction[S]:
        reasoning = self.reasoning and "reasoning" not in outputs_of(self.signature)
        schema: dict[str, Any] | None = schema_of_outputs(self.signature, reasoning=reasoning)
        completions: list[Completion] = []
        problems: Sequence[str] = ()

        def prompt(in_words: bool) -> Prompt:
            if completions:  # the chat may have gone on to a model that knows no schema beside the prompt
                late = form_of(self.signature, reasoning=reasoning, in_words=True) if in_words and native else ""
                return repair_prompt(problems, form=late)
            return prompt_of(self.signature, given, examples=self.examples, reasoning=reasoning, in_words=in_words)

        while True:
            native = schema is not None
            completion, schema = await _ask_structured(chat, prompt, schema)
            completions.append(completion)
            try:
                read = read_answer(self.signature, given, completion.text, completion.structured, reasoning=reasoning)
            except NotWhatWasAsked as error:
                if len(completions) > self.repairs or completion.finish_reason is FinishReason.REFUSAL:
                    raise self._given_up(completions, error) from None
                problems = error.problems
            else:
                thought = getattr(read.value, "reasoning", None) if self.reasoning and not reasoning else read.reasoning
                return Prediction(cast("S", read.value), thought, tuple(completions))

    def _given_up(self, completions: list[Completion], error: NotWhatWasAsked) -> StructureError:
        return StructureError(
            f"cannot read {self.signature.__name__} in the answer, because of {error} ({len(completions)} answers)",
            text=completions[-1].text,
            problems=error.problems,
            hint="describe the outputs better, give examples=, or allow more repairs=",
            side_effects=any(message.tool_uses for completion in completions for message in completion.messages),
        )


async def _ask_structured(
    chat: Chat, prompt: Callable[[bool], Prompt], schema: dict[str, Any] | None
) -> tuple[Completion, dict[str, Any] | None]:
    """Ask with the backend's own structured output where it has one, else in words. The schema that comes back is for the next prompt."""
    budgets = active().budgets
    if schema is not None:
        try:
            return await ask(chat, prompt(False), budgets=budgets, output_schema=schema), schema
        except InvalidRequest as error:  # `Unsupported`, or the schema says more than the model's API takes
            if error.side_effects:
                raise
    return await ask(chat, prompt(True), budgets=budgets), None


class ChainOfThought(Predict[S]):
    """As `Predict`, and the model writes its reasoning before the outputs: `Prediction.reasoning`, by `run`.

    A signature that has an output `reasoning` of its own keeps it.
    """

    reasoning = True

"""`Loop`: stages one after the other, round after round, each one recorded before the next begins. A crash loses one stage at most."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clisup.errors import UsageError
from clisup.llm.budget import Budget
from clisup.llm.chat import ChatOptions, LanguageModel
from clisup.llm.signatures import using
from clisup.llm.workflow.execution import Definition, Execution, OnStage, WorkflowResult
from clisup.llm.workflow.recording_chat import WorkflowModel
from clisup.llm.workflow.running import Running
from clisup.llm.workflow.stages import Stage

__all__ = ["Loop"]


class Loop:
    """Runs its stages in order, for `max_rounds` rounds, or until `until(rounds)` is true after one.

    Without `until` all rounds are wanted, and one is the default: a pipeline. With it, a loop that never comes to its end stops as
    `max_rounds`. `chat=False`: there is no conversation, each stage asks for itself. `result(rounds)` says what comes out of it; the
    default is the last stage's result in the last whole round.
    """

    def __init__(
        self,
        *stages: Stage,
        max_rounds: int = 1,
        until: Callable[[Sequence[Mapping[str, Any]]], bool] | None = None,
        result: Callable[[Sequence[Mapping[str, Any]]], Any] | None = None,
        name: str = "loop",
        chat: bool = True,
    ) -> None:
        if wrong := [stage for stage in stages if not isinstance(stage, Stage)]:
            raise UsageError(
                f"cannot make the workflow {name}, because {wrong[0]!r:.100} is no stage",
                kind="usage",
                hint='write Loop(Stage("write", write), Stage("check", check))',
            )
        names = [stage.name for stage in stages]
        problems = {
            "it has no stages": not names,
            "its stages need names of their own": len(set(names)) < len(names) or "" in names,
            f"max_rounds is {max_rounds}": max_rounds < 1,
        }
        for why in (why for why, wrong in problems.items() if wrong):
            raise UsageError(f"cannot make the workflow {name}, because {why}", kind="usage")
        self.name = name
        self._definition = Definition(stages, max_rounds, until, result or (lambda rounds: rounds[-1][names[-1]]), chat)

    async def run(
        self,
        task: Any = None,
        *,
        model: LanguageModel | str | None = None,
        budget: Budget | None = None,
        trace: str | os.PathLike[str] | None = None,
        on_stage: OnStage | None = None,
        options: ChatOptions | None = None,
    ) -> WorkflowResult:
        """Run it, or go on where `trace` ends: what is recorded is not asked for again.

        The task is JSON. An iteration of the budget is a round. `model` may be a name; without one, the nearest `using(model)` has
        it. `options` are those of the conversation: a CLI's own tools are left out where that can be, unless they say
        `cli_tools="default"`. `on_stage` is called for each stage once its record is durable; when it goes
        on, for the recorded ones first.

        Raises what a stage raises: run it again with the same trace to try that stage again. Raises `UsageError` where the trace is of
        another workflow or task, or where it is running, and `WorldError` where it cannot be written.
        """
        names = [stage.name for stage in self._definition.stages]
        own = budget or Budget(name=self.name)
        with using(model, budget=own) as here:
            found = here.model_to(f"run {self.name}")
            async with Running.open(self.name, names, task, trace) as running:
                model = WorkflowModel(found, running.progress.started.run_id)
                opened = (options or ChatOptions()).plain(f"run {self.name}")
                return await Execution(self._definition, running, model, own, on_stage, opened).go()

"""`ThinkPlanDoReflect`: an agent's loop of four stages in one conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from clisup.llm.signatures import OutputField, Predict, Signature
from clisup.llm.workflow.loop import Loop
from clisup.llm.workflow.stages import Stage, StageFunction, StageRun

THINK = "Think about this task: what is wanted, what is known, what is missing, what can go wrong? Do nothing yet."
PLAN = "Make the plan for this round: few steps, each of which can be checked."
DO = "Carry the plan out now, step by step. Say what you did, and what came out of it."
REFLECT = "Look back at the task and at what was done. Is all that was wanted there, and did you see that it is right?"


class Plan(Signature):
    """Plan of a round."""

    steps: list[str] = OutputField(description="in order, each a sentence", min_length=1)


class Reflection(Signature):
    """Judgement of a round. `answer` is the result of the whole task so far."""

    done: bool = OutputField(description="true only where nothing of the task is left")
    answer: str = OutputField(description="the result of the whole task, as far as it is there")
    lesson: str = OutputField(default="", description="what to do otherwise in the next round; empty where it is done")


class ThinkPlanDoReflect(Loop):
    """Rounds of think, plan, do and reflect, until the reflection is `done`, at most `max_rounds`.

    Each of the four is a prompt, or a function of a `StageRun`. A function `plan` returns a `Plan`, a function `reflect` a
    `Reflection`. `result` is the last reflection's answer.
    """

    def __init__(
        self,
        *,
        think: str | StageFunction = THINK,
        plan: str | StageFunction = PLAN,
        do: str | StageFunction = DO,
        reflect: str | StageFunction = REFLECT,
        max_rounds: int = 5,
        name: str = "think-plan-do-reflect",
    ) -> None:
        super().__init__(
            Stage("think", _thinking(think) if isinstance(think, str) else think),
            Stage("plan", _predicting(Plan, plan) if isinstance(plan, str) else plan, Plan),
            Stage("do", _asking(do) if isinstance(do, str) else do),
            Stage("reflect", _predicting(Reflection, reflect) if isinstance(reflect, str) else reflect, Reflection),
            max_rounds=max_rounds,
            until=lambda rounds: bool(rounds[-1]["reflect"].done),
            result=lambda rounds: rounds[-1]["reflect"].answer,
            name=name,
        )


def _thinking(words: str) -> StageFunction:
    async def think(run: StageRun) -> str:
        return (await run.ask(f"{words}\n\n{_about(run.task, run.rounds)}")).text

    return think


def _about(task: Any, rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return the task, and the lesson of the last round. The conversation has everything else."""
    text = task if isinstance(task, str) else to_json(task).decode()
    told = f"<task>\n{text}\n</task>"
    if not rounds:
        return told
    lesson = rounds[-1]["reflect"].lesson
    return f"{told}\n\nRound {len(rounds) + 1}. It is not done yet." + (
        f" Of the last round: {lesson}" if lesson else ""
    )


def _asking(words: str) -> StageFunction:
    async def do(run: StageRun) -> str:
        return (await run.ask(words)).text

    return do


def _predicting(signature: type[Signature], words: str) -> StageFunction:
    asked = type(signature.__name__, (signature,), {"__doc__": words, "__module__": signature.__module__})

    async def predict(run: StageRun) -> Signature:
        return (await run.predict(Predict(asked))).value

    return predict

"""Parts of a stage that are done once, whatever becomes of the rest of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from pydantic import JsonValue

from clisup.errors import UsageError
from clisup.llm.budget import Budget
from clisup.llm.workflow.recording_chat import RecordingChat
from clisup.llm.workflow.records import SpentRecord, StageStarted, StepCompleted, as_json
from clisup.llm.workflow.running import Running, now

__all__ = ["Steps", "awaited"]


class Steps:
    """Of one attempt at a stage. What earlier attempts recorded is there already."""

    def __init__(self, running: Running, started: StageStarted, part: Budget, chat: RecordingChat | None) -> None:
        self._running, self._started, self._part, self._chat = running, started, part, chat
        self._kept = {step.step: step.result for step in running.progress.steps}
        self._asked: set[str] = set()

    async def once(self, name: str, work: Callable[[], Awaitable[object]]) -> JsonValue:
        """The recorded result of this name, else that of `work`, recorded before it is given."""
        if name in self._asked:
            raise UsageError(
                f"cannot do step {name} of stage {self._started.stage} twice, because it is done once",
                kind="usage",
                hint="give each step a name",
            )
        self._asked.add(name)
        if name in self._kept:
            return self._kept[name]
        value = await awaited(work(), f"step {name} of stage {self._started.stage}")
        try:
            result = as_json(value)
        except ValueError as error:
            raise UsageError(
                f"cannot record what step {name} gave, because of {error}", kind="usage", hint="give JSON"
            ) from error
        record = StepCompleted(
            at=now(),
            round=self._started.round,
            stage=self._started.stage,
            attempt=self._started.attempt,
            step=name,
            result=result,
            messages=tuple(self._chat.take_new()) if self._chat else (),
            spent=SpentRecord.of(self._part.spent),
        )
        await self._running.append(record)
        return result


async def awaited(given: object, what: str) -> object:
    """What a stage or step gives in the end. Raises `UsageError` where it was no async function."""
    if not inspect.isawaitable(given):
        raise UsageError(f"cannot run {what}, because its function is not async", kind="usage", hint="write async def")
    return await given

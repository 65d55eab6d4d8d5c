"""A model that follows a script: for tests of what is built on models.

model = ScriptedModel("Hello.", Reply(ToolCall("add", {"a": 1, "b": 2}), "It is 3."), Overloaded("busy", kind="overloaded"))
...
model.assert_used_up()
assert model.asked[0].prompt.text == "Hi"
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Finished, StreamEvent
from clisup.llm.failures import Unsupported
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName, parse_model
from clisup.llm.rounds import open_round, results_in
from clisup.llm.streams import EventStream
from clisup.llm.testing.asked import Asked
from clisup.llm.testing.playing import Playing
from clisup.llm.testing.script import Answer, Reply, Step, reply_of

__all__ = ["Asked", "ScriptError", "ScriptedChat", "ScriptedModel"]


class ScriptError(AssertionError):
    """The test's script and what was asked do not fit together."""


class ScriptedModel(ModelCalls):
    """Gives its steps one after the other, whichever chat asks; `then` answers all that comes after them.

    `structured=True`: it has structured output of its own, as claude and codex have; else `output_schema` raises `Unsupported`.
    `asked` is what it was asked, `opened` counts its chats.
    """

    def __init__(
        self, *steps: Step, name: str = "scripted/model", structured: bool = False, then: Step | None = None
    ) -> None:
        self.steps: tuple[Step, ...] = steps
        self.name, self.has_structured, self.then = parse_model(name), structured, then
        self.asked: list[Asked] = []
        self.opened = 0

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        self.opened += 1
        yield ScriptedChat(self, options)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` where a step was never asked for."""
        left = len(self.steps) - len(self.asked)
        if left > 0:
            raise ScriptError(f"{left} of {len(self.steps)} steps were never asked for: {self.steps[-left:]!r}")

    async def _answer(self, asked: Asked) -> Reply:
        place = len(self.asked)
        step = self.steps[place] if place < len(self.steps) else self.then
        if step is None:
            raise ScriptError(
                f"cannot answer prompt {place + 1}, because the script has {len(self.steps)} steps: {asked.prompt.text[:200]!r}"
            )
        self.asked.append(asked)
        return reply_of(await _resolved(step, asked))


async def _resolved(step: Step, asked: Asked) -> Answer:
    if not callable(step):
        return step
    answer = step(asked)
    return await answer if inspect.isawaitable(answer) else answer


class ScriptedChat:
    """Made by `ScriptedModel.chat`. `messages` is the conversation so far."""

    session_id: str | None = None

    def __init__(self, model: ScriptedModel, options: ChatOptions) -> None:
        self._model, self.options = model, options
        self.messages: tuple[Message, ...] = tuple(options.history)
        self.notes: list[tuple[str, str, Any]] = []

    @property
    def model(self) -> ModelName:
        """The name that the script was given."""
        return self._model.name

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        """The events of the next step."""
        return EventStream(self._events(prompt, output_schema))

    async def _events(
        self, prompt: Prompt, output_schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        if output_schema is not None and not self._model.has_structured:
            raise Unsupported(f"{self.model} has no structured output", kind="unsupported")
        *before, said = as_messages(prompt)
        self._check_results(said)
        asked = Asked(said, (*self.messages, *before, said), self.options, output_schema)
        reply = await self._model._answer(asked)
        asked.outcome = "left"
        try:
            for action in Playing(reply, self.model, self.options.offered).actions():
                await trio.lowlevel.checkpoint()
                if callable(action):
                    await action()
                    continue
                if isinstance(action, Finished):
                    asked.outcome = "finished"
                    self.messages = (*asked.messages, *action.completion.messages)
                yield action
        except Exception:
            asked.outcome = "failed"
            raise

    def _check_results(self, said: Message) -> None:
        """Hold the prompt to the calls that wait, as a real chat does."""
        stopped = open_round(self.messages)
        if stopped is None:
            results_in(said, ())
        else:
            results_in(said, stopped.waiting, stopped.brought)

    async def note(self, code: str, message: str, data: Any = None) -> None:
        """Kept in `notes`, where a session of the daemon has its event log."""
        await trio.lowlevel.checkpoint()
        self.notes.append((code, message, data))

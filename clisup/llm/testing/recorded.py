"""A model that writes down what it is asked and says, and one that says it again.

    model = RecordingModel(resolve("claude"), "tests/answers.jsonl")    # once, with the real one
    model = ReplayingModel("tests/answers.jsonl")                        # ever after, without a daemon

A recording holds the prompts, the answers and all that tools gave, as they were: look at it before it is committed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Finished, LanguageModel, StreamEvent
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName, parse_model
from clisup.llm.streams import EventStream, stream_of
from clisup.llm.testing.scripted import ScriptError
from clisup.llm.testing.tape import Taped, header_of, read_tape, request_of

__all__ = ["RecordingModel", "ReplayingModel"]


class RecordingModel(ModelCalls):
    """Passes on to `model` and appends each answer to the file, whole, when its stream ends. A file that is there is begun anew."""

    def __init__(self, model: LanguageModel, path: str | Path) -> None:
        self.model, self.path = model, Path(path)
        self.name = getattr(model, "name", ModelName("recorded"))
        self.path.write_text(header_of(), encoding="utf-8")

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        async with self.model.chat(options) as chat:
            yield _RecordingChat(self, chat, options)


class _RecordingChat:
    def __init__(self, model: RecordingModel, chat: Chat, options: ChatOptions) -> None:
        self._model, self._chat, self._options = model, chat, options
        self._messages: tuple[Message, ...] = tuple(options.history)

    @property
    def model(self) -> ModelName:
        return self._chat.model

    @property
    def session_id(self) -> str | None:
        return self._chat.session_id

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        return EventStream(self._events(prompt, output_schema))

    async def _events(
        self, prompt: Prompt, output_schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        asked = (*self._messages, *as_messages(prompt))
        taped = Taped(request_of(self._options, asked, output_schema))
        try:
            async with stream_of(self._chat, prompt, output_schema=output_schema) as events:
                async for event in events:
                    taped.events.append(event)
                    if isinstance(event, Finished):
                        taped.end = "finished"
                        self._messages = (*asked, *event.completion.messages)
                    yield event
        except LLMError as error:
            taped.end, taped.error = "failed", error
            raise
        finally:
            with self._model.path.open(
                "a", encoding="utf-8"
            ) as file:  # one write of a line: several chats may record at a time
                file.write(taped.line())


class ReplayingModel(ModelCalls):
    """Answers from a recording: each prompt with the first answer, not given yet, that was recorded for the same request.

    The same is: system prompt, whole conversation, names and schemas of the tools, output schema. What was not recorded
    raises `ScriptError`, as does a file that cannot be read. Tools are not run: their results are in the recording.
    """

    def __init__(self, path: str | Path, *, name: str = "replayed/model") -> None:
        self.name, self.path = parse_model(name), Path(path)
        try:
            with self.path.open(encoding="utf-8") as file:
                self._left = read_tape(file, str(path))
        except OSError as error:
            hint = "record it with RecordingModel first" if isinstance(error, FileNotFoundError) else "check the path"
            raise ScriptError(f"cannot replay {path}, because of: {error.strerror}; {hint}") from None

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        yield _ReplayingChat(self, options)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` where an answer was never asked for."""
        if self._left:
            prompts = [taped.asked["messages"][-1] for taped in self._left]
            raise ScriptError(f"{len(self._left)} answers of {self.path} were never asked for: {str(prompts)[:1000]}")

    def _take(self, asked: dict[str, Any]) -> Taped:
        for place, taped in enumerate(self._left):
            if taped.asked == asked:
                return self._left.pop(place)
        raise ScriptError(
            f"{self.path} has no answer to this request that was not given yet; {_difference(asked, self._left)}"
        )


class _ReplayingChat:
    session_id: str | None = None

    def __init__(self, model: ReplayingModel, options: ChatOptions) -> None:
        self._model, self._options = model, options
        self._messages: tuple[Message, ...] = tuple(options.history)

    @property
    def model(self) -> ModelName:
        return self._model.name

    def stream(self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None) -> EventStream:
        return EventStream(self._events(prompt, output_schema))

    async def _events(
        self, prompt: Prompt, output_schema: Mapping[str, Any] | None
    ) -> AsyncGenerator[StreamEvent, None]:
        asked = (*self._messages, *as_messages(prompt))
        taped = self._model._take(request_of(self._options, asked, output_schema))
        for event in taped.events:
            await trio.lowlevel.checkpoint()
            if isinstance(event, Finished):
                self._messages = (*asked, *event.completion.messages)
            yield event
        if taped.error is not None:
            raise taped.error
        if taped.end == "left":
            raise ScriptError(
                f"{self._model.path} has no more of this answer: its stream was left when it was recorded"
            )


def _difference(asked: dict[str, Any], left: list[Taped]) -> str:
    """What would have to be the same, for who changed a prompt."""
    if not left:
        return "all of its answers were given"
    parts = [name for name, value in asked.items() if value != left[0].asked.get(name)]
    told = "\n".join(
        f"  {name} asked:    {str(asked[name])[-500:]}\n  {name} recorded: {str(left[0].asked.get(name))[-500:]}"
        for name in parts
    )
    return f"the next one differs in {' and '.join(parts)}:\n{told}"

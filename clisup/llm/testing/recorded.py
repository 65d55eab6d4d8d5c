"""A model that records its prompts and answers, and a model that repeats them.

    model = RecordingModel(resolve("claude"), "tests/answers.jsonl")    # once, with the real model
    model = ReplayingModel("tests/answers.jsonl")                        # later, without a daemon

A recording contains prompts, answers and results of tools unchanged: check it before you commit it. Its lines are a header and one
line for each answer:

    {"format": "clisup-llm-recording", "version": 1}
    {"asked": {"system": null, "messages": [...], "tools": [...], "output_schema": null}, "events": [...], "end": "finished"}

`end` is `finished`, `failed` (with the exception in `error`) or `left`. Readers ignore unknown fields, so additions keep `version`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import trio
from pydantic import TypeAdapter

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.llm import failures
from clisup.llm.answers import Finished, ModelName, StreamEvent, parse_model
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import Failed, LLMError
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.streams import EventStream, stream_of
from clisup.llm.testing.scripted import ScriptError

FORMAT, VERSION = "clisup-llm-recording", 1
End = Literal["finished", "failed", "left"]
_EVENTS: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(StreamEvent)}
_ERROR_FIELDS = ("kind", "message", "hint", "retryable", "retry_after_s", "side_effects")


@dataclass(slots=True)
class RecordedAnswer:
    """One answer. `asked` is its request as JSON, equal for equal requests."""

    asked: JsonObject
    events: list[StreamEvent] = field(default_factory=list)
    end: End = "left"
    error: LLMError | None = None

    def line(self) -> str:
        """Return the line of the file, with its newline."""
        told = [
            {"type": type(event).__name__, **_EVENTS[type(event).__name__].dump_python(event, mode="json")}
            for event in self.events
        ]
        line: JsonObject = {"asked": self.asked, "events": told, "end": self.end}
        if self.error is not None:
            line["error"] = _dumped(self.error)
        return json.dumps(line, ensure_ascii=False) + "\n"


def request_of(
    options: ChatOptions, messages: Sequence[Message], output_schema: Mapping[str, Any] | None
) -> JsonObject:
    """Return a request as JSON, without directory, labels and session params."""
    return {
        "system": options.system,
        "messages": [message.model_dump(mode="json") for message in messages],
        "tools": [{"name": tool.name, "input_schema": tool.input_schema} for tool in options.offered],
        "output_schema": None if output_schema is None else dict(output_schema),
    }


def read_recording(lines: Iterable[str], name: str) -> list[RecordedAnswer]:
    """Return the answers of a recording; `name` is for errors. A cut last line is left out. Raises `UsageError`."""
    whole = [line for line in lines if line.endswith("\n")]
    try:
        if not whole:
            raise ValueError("it has no whole line")
        header, *records = [json.loads(line) for line in whole]
        if (header["format"], header["version"]) != (FORMAT, VERSION):
            raise UsageError(
                f"{name} has format {header['format']!r}, version {header['version']}",
                hint=f"record it again: this clisup reads {FORMAT!r}, version {VERSION}",
            )
        return [_read(record) for record in records]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{name} is not a recording of a model: {str(error)[:200]}",
            hint="make one with RecordingModel",
        ) from None


def _read(record: JsonObject) -> RecordedAnswer:
    events = [
        adapter.validate_python({key: value for key, value in told.items() if key != "type"})
        for told in record["events"]
        if (adapter := _EVENTS.get(told["type"]))
    ]
    error = record.get("error")
    return RecordedAnswer(record["asked"], events, record["end"], None if error is None else _loaded(error))


def _dumped(error: LLMError) -> JsonObject:
    data = json.loads(json.dumps(error.data, default=str))
    return {"class": type(error).__name__, **{name: getattr(error, name) for name in _ERROR_FIELDS}, "data": data}


def _loaded(told: JsonObject) -> LLMError:
    kind = getattr(failures, told["class"], Failed)
    fields = {name: told[name] for name in _ERROR_FIELDS if name != "message"}
    error = (kind if isinstance(kind, type) and issubclass(kind, LLMError) else Failed)(told["message"], **fields)
    error.data = dict(told.get("data", {}))
    return error


class RecordingModel(ModelCalls):
    """Model that asks `model` and appends each whole answer to a file. An existing file is overwritten."""

    def __init__(self, model: LanguageModel, path: str | Path) -> None:
        self.model, self.path = model, Path(path)
        self.name = getattr(model, "name", ModelName("recorded"))
        self.path.write_text(json.dumps({"format": FORMAT, "version": VERSION}) + "\n", encoding="utf-8")

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        async with self.model.chat(options) as chat:
            yield _RecordedChat(self, chat, options)


class _RecordedChat:
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
        answer = RecordedAnswer(request_of(self._options, asked, output_schema))
        try:
            async with stream_of(self._chat, prompt, output_schema=output_schema) as events:
                async for event in events:
                    answer.events.append(event)
                    if isinstance(event, Finished):
                        answer.end = "finished"
                        self._messages = (*asked, *event.completion.messages)
                    yield event
        except LLMError as error:
            answer.end, answer.error = "failed", error
            raise
        finally:
            with self._model.path.open(
                "a", encoding="utf-8"
            ) as file:  # one write of a line: several chats may record at a time
                file.write(answer.line())


class ReplayingModel(ModelCalls):
    """Model that answers from a recording: each prompt gets the first unused answer of the same request.

    A request is system prompt, whole conversation, names and schemas of tools, and output schema. An unknown request raises
    `ScriptError`, as does an unreadable file. Tools do not run, because the recording has their results.
    """

    def __init__(self, path: str | Path, *, name: str = "replayed/model") -> None:
        self.name, self.path = parse_model(name), Path(path)
        try:
            with self.path.open(encoding="utf-8") as file:
                self._left = read_recording(file, str(path))
        except OSError as error:
            hint = "record it with RecordingModel first" if isinstance(error, FileNotFoundError) else "check the path"
            raise ScriptError(f"cannot replay {path}: {error.strerror}; {hint}") from None

    @asynccontextmanager
    async def _chat(self, options: ChatOptions) -> AsyncIterator[Chat]:
        yield _ReplayingChat(self, options)

    def assert_used_up(self) -> None:
        """Raise `ScriptError` if an answer is left."""
        if self._left:
            prompts = [answer.asked["messages"][-1] for answer in self._left]
            raise ScriptError(f"{len(self._left)} answers of {self.path} were never asked for: {str(prompts)[:1000]}")

    def _take(self, asked: JsonObject) -> RecordedAnswer:
        for place, answer in enumerate(self._left):
            if answer.asked == asked:
                return self._left.pop(place)
        raise ScriptError(f"{self.path} has no unused answer to this request; {_difference(asked, self._left)}")


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
        answer = self._model._take(request_of(self._options, asked, output_schema))
        for event in answer.events:
            await trio.lowlevel.checkpoint()
            if isinstance(event, Finished):
                self._messages = (*asked, *event.completion.messages)
            yield event
        if answer.error is not None:
            raise answer.error
        if answer.end == "left":
            raise ScriptError(
                f"{self._model.path} has only a part of this answer: its stream was abandoned during the recording"
            )


def _difference(asked: JsonObject, left: list[RecordedAnswer]) -> str:
    """Describe the difference from the next recorded request."""
    if not left:
        return "all answers are used"
    parts = [name for name, value in asked.items() if value != left[0].asked.get(name)]
    told = "\n".join(
        f"  {name} asked:    {str(asked[name])[-500:]}\n  {name} recorded: {str(left[0].asked.get(name))[-500:]}"
        for name in parts
    )
    return f"the next one differs in {' and '.join(parts)}:\n{told}"

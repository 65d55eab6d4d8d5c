"""Model and conversation of a workflow's stages: sessions with a label, and messages kept for the trace."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import trio
from pydantic_core import to_json

from clisup.errors import ClisupError
from clisup.llm.answers import Completion, Finished, ModelName, StreamEvent
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, Prompt, as_messages

LABEL = "clisup.workflow"
"""Label of all sessions of a workflow. Its value is the run's id."""
NOTE_S = 5.0
"""Seconds that a note to the daemon's event log may take."""

_logger = logging.getLogger("clisup.llm.workflow")  # the program's own log, as clisup.llm.budget


class WorkflowModel(ModelCalls):
    """Model of a workflow's stages. Each session has the label `clisup.workflow`, by which a later process finds it."""

    def __init__(self, model: LanguageModel, run_id: str) -> None:
        self.model = model
        self._labels = {LABEL: run_id}

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        return self.model.chat(replace(options, labels={**options.labels, **self._labels}))

    async def end_old_sessions(self) -> None:
        """End sessions of an earlier process that died. Their turns still run in the daemon, and would be done twice."""
        end = getattr(self.model, "end_sessions", None)
        if end is not None and (ended := await end(self._labels)):
            _logger.warning("ended %d sessions of the process before this one", ended)


class StageChat:
    """Chat of a stage. It keeps all messages for the trace."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.messages: list[Message] = []
        self.turn_ids: list[str] = []
        self._taken = 0

    @property
    def model(self) -> ModelName:
        """The model that answers."""
        return self._chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, if the chat has one."""
        return self._chat.session_id

    def begin(self, kept: Sequence[Message]) -> None:
        """Begin a stage. `kept` are the messages of its steps in earlier attempts."""
        self.messages, self.turn_ids = list(kept), []
        self._taken = len(self.messages)

    def take_new(self) -> list[Message]:
        """Return the stage's messages since the last call."""
        new, self._taken = self.messages[self._taken :], len(self.messages)
        return new

    async def note(self, code: str, message: str, data: dict[str, Any]) -> None:
        """Write a note into the session's event log, if the chat has one. A failure is only logged, because the trace is complete."""
        note = getattr(self._chat, "note", None)
        if note is None:
            return
        with trio.move_on_after(NOTE_S) as scope:
            try:
                await note(code, message, data=data)
            except (LLMError, ClisupError, OSError) as error:
                _logger.warning("cannot note %s in the event log: %s", message, error)
        if scope.cancelled_caught:
            _logger.warning("cannot note %s in the event log: no answer within %g s", message, NOTE_S)

    async def stream(
        self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None
    ) -> AsyncIterator[StreamEvent]:
        """Stream an answer, and keep its messages at the end."""
        async for event in self._chat.stream(prompt, output_schema=output_schema):
            if isinstance(event, Finished):
                completion = event.completion
                self.messages += [*as_messages(prompt), *_answered(completion)]
                self.turn_ids += [completion.turn_id] if completion.turn_id else []
            yield event


def _answered(completion: Completion) -> list[Message]:
    """Return an answer's messages, the last of them the model's. After structured output, claude sends no message."""
    messages = list(completion.messages or (completion.message,))
    if messages[-1].role != "assistant":
        said = completion.text if completion.structured is None else to_json(completion.structured).decode()
        messages.append(Message.assistant(said or "Done."))
    return messages

"""The model and the conversation of a workflow, as its stages have them: known by a label, and kept for the trace."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import trio
from pydantic_core import to_json

from clisup.errors import ClisupError
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, Completion, Finished, LanguageModel, StreamEvent
from clisup.llm.failures import LLMError
from clisup.llm.messages import Message, Prompt, as_messages
from clisup.llm.names import ModelName

__all__ = ["LABEL", "NOTE_S", "RecordingChat", "WorkflowModel"]

LABEL = "clisup.workflow"
"""The label of all sessions of a workflow; its value is the run's id."""
NOTE_S = 5.0
"""How long a note to the daemon's event log may take."""

_logger = logging.getLogger("clisup.llm.workflow")  # the program's own log, as that of clisup.llm.budget


class WorkflowModel(ModelCalls):
    """The model of a workflow, as its stages have it: each session has the label `clisup.workflow`, so that it can be found."""

    def __init__(self, model: LanguageModel, run_id: str) -> None:
        self.model = model
        self._labels = {LABEL: run_id}

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        return self.model.chat(replace(options, labels={**options.labels, **self._labels}))

    async def end_what_died(self) -> None:
        """A process before this one may have died: its sessions are the daemon's, and what runs there would be done twice."""
        end = getattr(self.model, "end_sessions", None)
        if end is not None and (ended := await end(self._labels)):
            _logger.warning("ended %d sessions of the process before this one", ended)


class RecordingChat:
    """A chat that keeps what is said in it, for the trace: it is what a stage has as `chat`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.messages: list[Message] = []
        self.turn_ids: list[str] = []
        self._taken = 0

    @property
    def model(self) -> ModelName:
        """Who answers."""
        return self._chat.model

    @property
    def session_id(self) -> str | None:
        """The daemon's session, where there is one."""
        return self._chat.session_id

    def begin(self, kept: Sequence[Message]) -> None:
        """A stage begins: what was said before is another one's. `kept` is what its steps said in earlier attempts."""
        self.messages, self.turn_ids = list(kept), []
        self._taken = len(self.messages)

    def take_new(self) -> list[Message]:
        """What was said in the stage since it was asked last."""
        new, self._taken = self.messages[self._taken :], len(self.messages)
        return new

    async def note(self, code: str, message: str, data: dict[str, Any]) -> None:
        """Into the session's event log, where the chat has one. In vain, it is logged: the trace has it all the same."""
        note = getattr(self._chat, "note", None)
        if note is None:
            return
        with trio.move_on_after(NOTE_S) as scope:
            try:
                await note(code, message, data=data)
            except (LLMError, ClisupError, OSError) as error:
                _logger.warning("cannot note %s in the event log: %s", message, error)
        if scope.cancelled_caught:
            _logger.warning("cannot note %s in the event log: it took longer than %g s", message, NOTE_S)

    async def stream(
        self, prompt: Prompt, *, output_schema: Mapping[str, Any] | None = None
    ) -> AsyncIterator[StreamEvent]:
        """As that of any chat; what is whole at its end is kept."""
        async for event in self._chat.stream(prompt, output_schema=output_schema):
            if isinstance(event, Finished):
                completion = event.completion
                self.messages += [*as_messages(prompt), *_answered(completion)]
                self.turn_ids += [completion.turn_id] if completion.turn_id else []
            yield event


def _answered(completion: Completion) -> list[Message]:
    """What an answer added, ending with a word of the model's: after its own structured output claude says none, and a history has to."""
    messages = list(completion.messages or (completion.message,))
    if messages[-1].role != "assistant":
        said = completion.text if completion.structured is None else to_json(completion.structured).decode()
        messages.append(Message.assistant(said or "Done."))
    return messages

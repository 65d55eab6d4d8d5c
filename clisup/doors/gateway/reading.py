"""Events of a turn as one answer: from its beginning, or from results of tools, to the next calls or the end of the turn.

The end of an answer follows from the journal alone. So an answer that is read again is the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from clisup.client.aio_session import AsyncEvents, AsyncHistory, AsyncSession
from clisup.client.events import Envelope, Gap, MessageStop
from clisup.doors.gateway.answers import WholeAnswer, encode
from clisup.doors.gateway.failures import GatewayError, failure_of, refused
from clisup.doors.gateway.kept_thinking import KeptThinking
from clisup.doors.gateway.parked import ParkedCalls, call_id, call_mark
from clisup.errors import ClisupError
from clisup.llm.answers import Completion, Finished, FinishReason, MessageDone, ModelName, Retracted, TextDelta
from clisup.llm.failures import LLMError, Refused
from clisup.llm.messages import ToolResultBlock, ToolUseBlock
from clisup.llm.sessions.turn_reader import TurnReader, whole
from clisup.model.usage import Usage

__all__ = ["AnswerBegun", "AnswerPlace", "Item", "TakenBack", "TextPiece", "read_answer"]


@dataclass(slots=True)
class AnswerPlace:
    """Place of an answer in the journal: the turn, and the results after which the answer begins, by the marks of their calls.

    `callers` are the backend's names of the program's tools. `native` calls end the turn and keep their ids. `recorded`: the
    same request gets the same answer again. `over` is set once the turn has ended.
    """

    session: AsyncSession
    model: ModelName
    turn_id: str
    after_seq: int
    callers: frozenset[str] = frozenset()
    native: bool = False
    results: dict[str, ToolResultBlock] = field(default_factory=dict)
    parked: ParkedCalls | None = None
    closed: bool = False
    recorded: bool = False
    schema: bool = False
    call_prefix: str = "call_"
    ends: str = ""
    over: bool = False
    thinking: KeptThinking | None = None
    names: Mapping[str, str] = field(default_factory=dict)


class AnswerBegun(NamedTuple):
    """First item: the id of the answer, and its time in seconds since the epoch."""

    id: str
    created: int


class TextPiece(NamedTuple):
    """Piece of text."""

    text: str


class TakenBack(NamedTuple):
    """Report that the CLI took back pieces that were given already."""


Item = AnswerBegun | TextPiece | TakenBack | WholeAnswer


async def read_answer(place: AnswerPlace, *, deltas: bool) -> AsyncGenerator[Item, None]:
    """Give the items of an answer; the last one is the `WholeAnswer`. Raises `GatewayError` for a turn that failed."""
    fold = _Fold(place)
    events = _events(place, deltas=deltas)
    try:
        async for envelope in events:
            if isinstance(envelope.event, Gap):
                raise refused("events of the turn are gone", kind="storage_failed")
            if envelope.turn_id != place.turn_id:
                continue
            for item in fold.read(await whole(envelope, place.session.blob)):
                if isinstance(item, WholeAnswer):
                    place.over = place.native or not item.calls  # a CLI waits for the results of its calls
                    yield item
                    return
                yield item
    except ClisupError as error:  # the daemon stays away, or the session was removed
        raise GatewayError(failure_of(error)) from error
    finally:
        events.close()
    raise refused("the turn has no end in the journal: its session was closed", kind="session_closed")


def _events(place: AnswerPlace, *, deltas: bool) -> AsyncHistory | AsyncEvents:
    if place.closed:
        return place.session.history(place.after_seq)
    return place.session.turn_events(place.after_seq, deltas=deltas)


class _Fold:
    """Fold of a turn's envelopes. Earlier answers of the turn are skipped."""

    def __init__(self, place: AnswerPlace) -> None:
        self._place = place
        self._reader = TurnReader(place.model, place.session.id, place.turn_id, place.callers)
        self._seen: set[str] = set()
        self._skipping = bool(place.results)
        self._number = 0
        self._said: list[str] = []
        self._current = ""
        self._usages: list[Usage] = []
        self._begun = False

    def read(self, envelope: Envelope) -> list[Item]:
        """Return the items of an event."""
        items: list[Item] = []
        if not self._begun and not self._skipping:
            items.append(self._beginning(envelope.ts))
        event = envelope.event
        if isinstance(event, MessageStop) and event.parent_tool_use_id is None and event.usage is not None:
            self._usages.append(event.usage)
        try:
            for found in self._reader.read(envelope):
                items += self._take(found)
        except Refused:
            items.append(WholeAnswer("".join(self._said), reason=FinishReason.REFUSAL))
        except LLMError as error:
            self._place.over = True
            raise GatewayError(failure_of(error, recorded=self._place.recorded)) from error
        if not self._place.native and (pending := self._pending()):
            items += self._stop(pending, envelope.ts)
        return items

    def _beginning(self, at: str) -> AnswerBegun:
        self._begun = True
        id_ = f"{self._place.session.id.replace('-', '')}-{self._place.turn_id}-{self._number}"
        return AnswerBegun(id_, int(datetime.fromisoformat(at).timestamp()))

    def _take(self, found: object) -> list[Item]:
        if self._skipping:
            return []
        if isinstance(found, TextDelta) and found.parent is None:
            return self._text(found.text)
        if isinstance(found, MessageDone) and found.parent is None:
            self._current = ""
        elif isinstance(found, Retracted) and self._current:
            self._said = ["".join(self._said)[: -len(self._current)]]
            self._current = ""
            return [TakenBack()]
        elif isinstance(found, Finished):
            return self._finished(found.completion)
        return []

    def _text(self, text: str) -> list[Item]:
        if self._place.schema or not text:
            return []
        between = "\n\n" if not self._current and any(self._said) else ""
        self._current += between + text
        self._said.append(between + text)
        return [TextPiece(between + text)]

    def _finished(self, completion: Completion) -> list[Item]:
        items: list[Item] = []
        text = "".join(self._said)
        if not text:
            text = completion.text
            if self._place.schema and completion.structured is not None:
                text = encode(completion.structured)
            items = [TextPiece(text)] if text else []
        usage = completion.usage
        if self._number or completion.usage.total_tokens is None:
            usage = Usage.total(self._usages) if self._usages else usage
        calls = tuple(self._own(call) for call in completion.tool_calls)
        if self._place.native and self._place.thinking is not None:
            self._place.thinking.keep(calls, completion.message)
        names = self._place.names
        calls = tuple(call.model_copy(update={"name": names.get(call.name, call.name)}) for call in calls)
        return [*items, WholeAnswer(text, calls, completion.finish_reason, usage)]

    def _own(self, call: ToolUseBlock) -> ToolUseBlock:
        if self._place.native:
            return call
        id_ = call_id(self._place.call_prefix, self._place.session.id, call.id)
        return call.model_copy(update={"id": id_})

    # -- calls of the program's tools at a CLI

    def _pending(self) -> list[ToolUseBlock]:
        """Return the calls at which an answer ends: new ones, once their message is whole."""
        new = [call for id_, call in self._reader.calling.items() if id_ not in self._seen]
        return new if new and all(self._reader.is_whole(call.id) for call in new) else []

    def _stop(self, pending: list[ToolUseBlock], at: str) -> list[Item]:
        """End an answer at these calls. The answer of the request begins after the calls whose results it brings."""
        self._seen |= {call.id for call in pending}
        found = [item for event in self._reader.pause(pending, at) for item in self._take(event)]
        self._number += 1
        self._usages, results = [], self._place.results
        if not self._skipping:
            return found
        brought = {call.id: results[mark] for call in pending if (mark := call_mark(call.id)) in results}
        if not brought:
            return []
        if len(brought) < len(pending):
            missing = next(call.name for call in pending if call.id not in brought)
            raise refused(f"the request has no result for a call of {missing}: bring those of all calls together")
        self._reader.bring([block.model_copy(update={"tool_use_id": id_}) for id_, block in brought.items()])
        if self._place.parked is not None:
            self._place.parked.bring(pending, brought)
        self._skipping = False
        return [self._beginning(at)]

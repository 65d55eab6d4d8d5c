"""What a run does with the questions of its CLI: they are open once journaled, and settled in its phase once resolved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from clisup.backends.base import ApprovalAnswer, Decoder
from clisup.daemon.runs.keeper_link import Leash
from clisup.daemon.sessions.recorder import Item
from clisup.model.events import ApprovalRequested, ApprovalResolved, EventBase
from clisup.model.sessions.ledger import Turn
from clisup.policy.watchdog import PhaseTracker

__all__ = ["Asking", "AskingSink", "asks"]

_QUESTIONS = frozenset({ApprovalRequested, ApprovalResolved})
_CANCELLED = ApprovalAnswer("cancelled")


class AskingSink(Protocol):
    """What the questions of a run need from its turn."""

    @property
    def turn(self) -> Turn: ...
    def asked(self, event: ApprovalRequested) -> None: ...
    def give_up(self, ending: Mapping[str, Any]) -> list[Item]: ...


class Asking:
    """The questions of one run. What is open is in the ledger, so everything here comes after a write of the journal.

    `decoder` gives the one that is at work; `changed` is told when the CLI goes on.
    """

    def __init__(
        self,
        sink: AskingSink,
        tracker: PhaseTracker,
        leash: Leash,
        decoder: Callable[[], Decoder],
        changed: Callable[[], None],
        most: int,
    ) -> None:
        """`most` is the backend's limit `open_approvals`."""
        self._sink = sink
        self._tracker = tracker
        self._decoder = decoder
        self._changed = changed
        self._most = most
        self.ready: Callable[[], Awaitable[None]] = leash.ready

    def word(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """How an answer is said to this CLI; None where it does not wait for one. Raises `UsageError(unsupported)`.

        Only after `ready`: all that the CLI had said to a daemon before this one is known again then.
        """
        return self._decoder().answer(approval_id, answer)

    def resolved(self, event: ApprovalResolved) -> None:
        """An approval has its answer: the CLI goes on."""
        self._tracker.see(event)
        self._changed()

    def is_news(self, event: EventBase) -> bool:
        """Is it to be journaled? That the CLI does not wait any longer is news only where nobody had answered it.

        Where too many questions are open, one more is no news: the run is being ended.
        """
        if type(event) is ApprovalRequested:
            return not self.too_many
        if type(event) is not ApprovalResolved:
            return True
        self._tracker.see(event)
        return event.approval_id in self._sink.turn.approvals

    @property
    def too_many(self) -> bool:
        """More questions are open than may be."""
        return len(self._sink.turn.approvals) > self._most

    def put(self, events: Sequence[EventBase]) -> None:
        """Put what the CLI asks to whoever decides. A question that was decoded again may have its answer."""
        for event in events:
            if not isinstance(event, ApprovalRequested):
                continue
            if event.approval_id in self._sink.turn.approvals:
                self._sink.asked(event)
            else:
                self._tracker.see(ApprovalResolved(approval_id=event.approval_id, decision="cancelled"))

    def give_up(self, ending: Mapping[str, Any]) -> list[Item]:
        """The run is being ended, so that nobody's word is waited for: what to journal."""
        items = self._sink.give_up(ending)
        for item in items:
            self._tracker.see(item.event)
        return items

    def last_words(self) -> str:
        """What a CLI wants to hear of its open questions beside the request to end the turn."""
        return "".join(self.word(name, _CANCELLED) or "" for name in self._sink.turn.approvals)


def asks(events: Sequence[EventBase]) -> bool:
    """Is there something in it that concerns a question?"""
    return not _QUESTIONS.isdisjoint(map(type, events))

"""Approval requests of one run: journaled first, then decided, and closed in the run's phase once resolved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from clisup.backends.base import ApprovalAnswer, Decoder
from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.keeper_link import KeeperLink
from clisup.daemon.runs.run_parts import RunSink
from clisup.model.events import ApprovalRequested, ApprovalResolved, EventBase
from clisup.model.sessions.turn_state import TurnEnding
from clisup.policy.watchdog import PhaseTracker

__all__ = ["ApprovalRequests", "has_approvals"]

_APPROVALS = frozenset({ApprovalRequested, ApprovalResolved})
_CANCELLED = ApprovalAnswer("cancelled")


class ApprovalRequests:
    """Approval requests of one run. The ledger holds the open requests, so each step here follows a write of the journal.

    `decoder` returns the present decoder. `changed` runs when the CLI continues.
    """

    def __init__(
        self,
        sink: RunSink,
        tracker: PhaseTracker,
        keeper: KeeperLink,
        decoder: Callable[[], Decoder],
        changed: Callable[[], None],
        limit: int,
    ) -> None:
        """`limit` is the backend's limit `open_approvals`."""
        self._sink = sink
        self._tracker = tracker
        self._decoder = decoder
        self._changed = changed
        self._limit = limit
        self.ready: Callable[[], Awaitable[None]] = keeper.ready

    def reply(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the answer in the CLI's protocol, or None if the CLI does not wait for an answer.

        Call `ready` first: then all requests to an earlier daemon are known. Raises `UsageError(unsupported)`.
        """
        return self._decoder().answer(approval_id, answer)

    def resolved(self, event: ApprovalResolved) -> None:
        """Note a decision: the CLI continues."""
        self._tracker.see(event)
        self._changed()

    def is_new(self, event: EventBase) -> bool:
        """Tell whether to journal the event.

        A resolution is news only for an open approval. A request beyond the limit is no news: the run is being ended.
        """
        if type(event) is ApprovalRequested:
            return not self.too_many
        if type(event) is not ApprovalResolved:
            return True
        self._tracker.see(event)
        return event.approval_id in self._sink.turn.approvals

    @property
    def too_many(self) -> bool:
        """Tell whether more requests are open than the limit allows."""
        return len(self._sink.turn.approvals) > self._limit

    def submit(self, events: Sequence[EventBase]) -> None:
        """Submit journaled requests for a decision. A request that is decoded again may already have a decision."""
        for event in events:
            if not isinstance(event, ApprovalRequested):
                continue
            if event.approval_id in self._sink.turn.approvals:
                self._sink.approval_requested(event)
            else:
                self._tracker.see(ApprovalResolved(approval_id=event.approval_id, decision="cancelled"))

    def cancel(self, ending: TurnEnding) -> list[Item]:
        """Cancel the open requests of a run that is being ended, and return the items to journal."""
        items = self._sink.cancel_approvals(ending)
        for item in items:
            self._tracker.see(item.event)
        return items

    def cancellations(self) -> str:
        """Return the replies to open requests that the CLI needs beside the request to end the turn."""
        return "".join(self.reply(name, _CANCELLED) or "" for name in self._sink.turn.approvals)


def has_approvals(events: Sequence[EventBase]) -> bool:
    """Tell whether an approval is requested or resolved in these events."""
    return not _APPROVALS.isdisjoint(map(type, events))

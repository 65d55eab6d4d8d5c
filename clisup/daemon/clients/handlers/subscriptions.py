"""Handlers of `session/subscribe`, `session/unsubscribe` and `session/ack`, with their cursors."""

from __future__ import annotations

from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.clients.subscription import EventFilter, Subscription
from clisup.daemon.journal.recorder import Recorder
from clisup.daemon.sessions.registry import Manager
from clisup.errors import UsageError
from clisup.store.cursor_store import CursorFile, begin_after
from clisup.wire.params import AckParams, SubscribeParams, UnsubscribeParams
from clisup.wire.results import AckResult, Done, SubscribeResult

__all__ = ["SubscriptionHandlers"]

ALL = "*"


class SubscriptionHandlers:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def table(self) -> Handlers:
        return {
            "session/subscribe": self.subscribe,
            "session/unsubscribe": self.unsubscribe,
            "session/ack": self.acknowledge,
        }

    async def subscribe(self, connection: Connection, params: SubscribeParams) -> bytes:
        """Open a subscription. The subscription starts after the answer is sent."""
        _check(connection, params)
        manager = self._manager
        everything = params.session_id == ALL
        sessions = list(manager) if everything else [manager.get(params.session_id)]
        known = {session.id: session.recorder for session in sessions}
        cursor = manager.cursors.get(params.name) if params.name is not None else None
        begin = begin_after(
            {id_: recorder.next_seq - 1 for id_, recorder in known.items()},
            asked=params.after_seq,
            stored=cursor.seqs if cursor is not None else None,
            all_known=cursor is not None and cursor.all_known,
        )
        _check_begin(begin, known)
        if params.name is not None:
            _store_begin(cursor or manager.cursors.make(params.name), begin, everything)
        types = frozenset(params.types) if params.types is not None else None
        wants = EventFilter(types, params.deltas, params.raw)
        watchers = manager.services.everywhere if everything else known[params.session_id].watchers
        after = {id_: seq + 1 for id_, seq in begin.items()}
        connection.subscribe(params.session_id, Subscription(wants, begin=after, known=known, watchers=watchers))
        if everything:
            result = SubscribeResult(cursors=begin)
        else:
            recorder, seq = known[params.session_id], begin[params.session_id]
            result = SubscribeResult(next_seq=recorder.next_seq, first_seq=recorder.first_seq, after_seq=seq)
        return result.model_dump_json(exclude_none=True).encode()

    async def unsubscribe(self, connection: Connection, params: UnsubscribeParams) -> bytes:
        """End a subscription of this connection, and remove the cursor if the client names one."""
        connection.unsubscribe(params.session_id)
        if params.name is not None:
            self._manager.cursors.forget(params.name)
        return Done().to_json()

    async def acknowledge(self, connection: Connection, params: AckParams) -> bytes:
        """Move a cursor forward, and return its position."""
        recorder = self._manager.get(params.session_id).recorder
        cursor = self._manager.cursors.get(params.name)
        if cursor is None:
            raise UsageError(
                f"cursor {params.name!r} not found: no subscription has used this name",
                hint="subscribe with it first",
                param="name",
            )
        if params.seq >= recorder.next_seq:
            raise UsageError(
                f"seq {params.seq} does not exist yet: the next one is {recorder.next_seq}",
                hint="use a seq of this session's events",
                next_seq=recorder.next_seq,
            )
        return AckResult(seq=cursor.move(params.session_id, params.seq)).to_json()


def _check(connection: Connection, params: SubscribeParams) -> None:
    if params.session_id == ALL and isinstance(params.after_seq, int) and params.after_seq != 0:
        raise UsageError(
            f"invalid after_seq {params.after_seq} for all sessions: each session has seqs of its own",
            hint="give 0 for everything, or an object of session ids and seqs",
            param="after_seq",
        )
    if params.session_id != ALL and isinstance(params.after_seq, dict):
        raise UsageError("invalid after_seq for one session: an object", hint="give one seq", param="after_seq")
    if params.session_id != ALL and ALL in connection.subscriptions:
        raise UsageError(
            "this connection already follows all sessions",
            hint="end that subscription first, or use another connection",
            param="session_id",
        )


def _check_begin(begin: dict[str, int], known: dict[str, Recorder]) -> None:
    for session_id, after in begin.items():
        if after >= (next_seq := known[session_id].next_seq):
            raise UsageError(
                f"seq {after} of session {session_id} does not exist yet: the next one is {next_seq}",
                hint="use a seq of this session's events",
                next_seq=next_seq,
            )


def _store_begin(cursor: CursorFile, begin: dict[str, int], everything: bool) -> None:
    """Store the start of the subscription. A client that dies before its first acknowledgement begins there again."""
    new = {id_: seq for id_, seq in begin.items() if id_ not in cursor.seqs}
    if new or (everything and not cursor.all_known):
        cursor.begin(new, all_known=cursor.all_known or everything)

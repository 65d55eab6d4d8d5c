"""Opening, acknowledging and ending subscriptions: what `session/subscribe` means, with its cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clisup.daemon.clients.connection import Connection
from clisup.daemon.clients.subscription import EventFilter, Subscription
from clisup.daemon.sessions.recorder import Recorder
from clisup.errors import UsageError
from clisup.store.cursor_store import CursorFile, begin_after
from clisup.wire import models as m

if TYPE_CHECKING:
    from clisup.daemon.sessions.registry import Manager

__all__ = ["acknowledge", "subscribe", "unsubscribe"]

ALL = "*"


def subscribe(manager: Manager, connection: Connection, params: m.SubscribeParams) -> m.SubscribeResult:
    """Open a subscription; it starts after the answer to its request is out.

    Raises `UsageError`: invalid_params, session_not_found, limit_exceeded; `WorldError(storage_failed)`.
    """
    _check(connection, params)
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
        _keep(cursor or manager.cursors.make(params.name), begin, everything)
    types = frozenset(params.types) if params.types is not None else None
    wants = EventFilter(types, params.deltas, params.raw)
    watchers = manager.services.everywhere if everything else known[params.session_id].watchers
    after = {id_: seq + 1 for id_, seq in begin.items()}
    connection.subscribe(params.session_id, Subscription(wants, begin=after, known=known, watchers=watchers))
    if everything:
        return m.SubscribeResult(cursors=begin)
    recorder = known[params.session_id]
    seq = begin[params.session_id]
    return m.SubscribeResult(next_seq=recorder.next_seq, first_seq=recorder.first_seq, after_seq=seq)


def _check(connection: Connection, params: m.SubscribeParams) -> None:
    if params.session_id == ALL and isinstance(params.after_seq, int) and params.after_seq != 0:
        raise UsageError(
            f"cannot subscribe to all sessions after seq {params.after_seq}, because each has seqs of its own",
            hint="give 0 for everything, or an object of session ids and seqs",
            param="after_seq",
        )
    if params.session_id != ALL and isinstance(params.after_seq, dict):
        raise UsageError(
            "cannot subscribe to one session after an object of seqs", hint="give one seq", param="after_seq"
        )
    if params.session_id != ALL and ALL in connection.subscriptions:
        raise UsageError(
            "cannot subscribe to one session, because this connection follows all of them",
            hint="end that subscription first, or use another connection",
            param="session_id",
        )


def _check_begin(begin: dict[str, int], known: dict[str, Recorder]) -> None:
    for session_id, after in begin.items():
        if after >= (next_seq := known[session_id].next_seq):
            raise UsageError(
                f"cannot subscribe to {session_id} after seq {after}, because the next one is {next_seq}",
                hint="use a seq that this session gave",
                next_seq=next_seq,
            )


def _keep(cursor: CursorFile, begin: dict[str, int], everything: bool) -> None:
    """The first beginning is durable too: a client that dies before its first acknowledgement comes back to it."""
    new = {id_: seq for id_, seq in begin.items() if id_ not in cursor.seqs}
    if new or (everything and not cursor.all_known):
        cursor.begin(new, all_known=cursor.all_known or everything)


def unsubscribe(manager: Manager, connection: Connection, params: m.UnsubscribeParams) -> None:
    """End a subscription of this connection, and forget a cursor where one is named."""
    connection.unsubscribe(params.session_id)
    if params.name is not None:
        manager.cursors.forget(params.name)


def acknowledge(manager: Manager, params: m.AckParams) -> int:
    """Move a cursor on; give where it stands. Raises `UsageError`: invalid_params, session_not_found."""
    recorder = manager.get(params.session_id).recorder
    cursor = manager.cursors.get(params.name)
    if cursor is None:
        raise UsageError(
            f"cannot acknowledge for {params.name!r}, because no subscription has used this name",
            hint="subscribe with it first",
            param="name",
        )
    if params.seq >= recorder.next_seq:
        raise UsageError(
            f"cannot acknowledge seq {params.seq}, because the next one is {recorder.next_seq}",
            hint="use a seq that this session gave",
            next_seq=recorder.next_seq,
        )
    return cursor.move(params.session_id, params.seq)

"""What a client writes into a session's journal: a `notice` of its own, between or during turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clisup.daemon.sessions.recorder import Item
from clisup.errors import UsageError
from clisup.model.envelope import writable
from clisup.model.events import Actor, Notice
from clisup.model.lifecycle import SessionState
from clisup.wire.note_models import NoteParams, NoteResult

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["note"]


async def note(session: Session, params: NoteParams, actor: Actor) -> NoteResult:
    """Journal it. It belongs to no turn: a client speaks of what it does itself, also while a turn runs.

    Raises `UsageError(session_closed)`, `WorldError(storage_failed)`.
    """
    if session.state is SessionState.CLOSED:
        raise UsageError(
            f"cannot note anything in session {session.id}, because it is closed",
            kind="session_closed",
            hint="note it before the session is closed",
        )
    event = Notice(code=params.code, message=params.message, data=writable(params.data), actor=actor)
    seq = session.recorder.record([Item(event)])
    await session.sync()
    return NoteResult(seq=seq)

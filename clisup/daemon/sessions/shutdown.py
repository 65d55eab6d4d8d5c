"""How a session stops: closed by a client, for good, or left by a daemon that goes, for the next one to take up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from clisup.daemon.sessions.recorder import Item
from clisup.errors import UsageError, WorldError
from clisup.host.log import LOG
from clisup.model.events import Actor, Notice
from clisup.model.lifecycle import Cause, SessionState

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["Shutdown"]


class Shutdown:
    """One session's. `closing`: no prompt comes any more; `draining`: no turn begins; `left`: what runs ends without us."""

    __slots__ = ("_closed", "_session", "closing", "draining", "left")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._closed: trio.Event | None = None  # there while somebody waits for it
        self.closing = False
        self.draining = False
        self.left = False

    def check_open(self) -> None:
        """Raises `UsageError(session_closed)`, `WorldError(shutting_down)` where no prompt can be taken."""
        session = self._session
        if session.state is SessionState.CLOSED or self.closing:
            raise UsageError(
                f"cannot prompt session {session.id}, because it is closed",
                kind="session_closed",
                hint="open a new session",
            )
        if self.draining:
            raise WorldError(
                "cannot take a prompt, because the daemon is stopping",
                kind="shutting_down",
                hint="try again after its restart",
            )

    # -- for good ----------------------------------------------------------------------------------------------------

    async def close(self, actor: Actor) -> None:
        """Interrupt what runs, drop what waits, forget what is private. Closing twice is no error."""
        session = self._session
        if session.state is SessionState.CLOSED:
            return
        self.closing = True
        closed = self._closed = self._closed or trio.Event()
        try:
            for turn in list(session.ledger.queue):
                if session.starting != turn.id:
                    session.drop_queued(turn, actor)
        except WorldError:  # the client is told, so the session must not close by itself later
            self.closing = False
            raise
        while not closed.is_set():
            news = session.recorder.news
            if session.busy:  # the CLI may begin a turn of its own after the first, too
                turn_id = session.ledger.current.id if session.ledger.current else session.ledger.queue[0].id
                await session.interrupt(turn_id, "graceful", actor)
            else:
                session.work_came()
                await news.wait()

    async def finish_close(self) -> None:
        """The session's own task does the rest, when no turn is left; again where its live process had to go before."""
        session = self._session
        if session.live is not None:
            await session.live.retire("client")
            return  # there may be news
        await session.recorder.record_surely(lambda: [Item(Notice(code="closed", message="the session was closed"))])
        with suppress(WorldError):  # the daemon stops
            await session.sync()
        session.advance(Cause.CLOSE)
        if session.tools is not None:
            session.tools.close()
        session.services.opened.leave(session)
        session.dir.forget_secrets()
        LOG.forget_brought(session.id)
        session.recorder.close()
        if self._closed is not None:
            self._closed.set()
            session.recorder.wake()

    # -- with the daemon ---------------------------------------------------------------------------------------------

    async def drain(self, mode: str) -> None:
        """The daemon stops: take no new turn; with `kill`, end the one that runs."""
        session = self._session
        self.draining = True
        session.leave_line()
        while (turn_id := self._active()) is not None:  # the CLI may begin a turn of its own after the first
            if mode == "kill":
                session.end_current("operator", "term")
            await session.finished(turn_id)
        if session.live is not None:
            await session.live.retire("operator")

    def leave(self) -> None:
        """The daemon goes, and what has not ended by now ends without it: nobody need wait here."""
        self.left = True
        self._session.approvals.leave()
        self._session.recorder.wake()

    def _active(self) -> str | None:
        """The turn that runs, or is just being started."""
        current = self._session.ledger.current
        return current.id if current is not None else self._session.starting

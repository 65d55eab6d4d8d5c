"""How a session takes up what a reload has changed for its backend: between two turns, never in the middle of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from clisup.config.session_spec import SessionSpec
from clisup.daemon.backends import Backend
from clisup.policy.watchdog import TurnTimeouts

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["Renewal", "timeouts_of"]


class Renewal:
    """One session's. A live process that rests gets the new timers at once, and is replaced later where it has to be."""

    __slots__ = ("_coming", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._coming: Backend | None = None

    def come(self, backend: Backend) -> None:
        """Its backend is this one now: from its next turn on, or at once where none runs."""
        if backend is not self._session.backend or self._coming is not None:
            self._coming = backend
            self.take_up()
            self._session.work_came()

    def take_up(self) -> None:
        """Change over, unless a turn runs: then its end is the time for it."""
        session = self._session
        if self._coming is None or session.at_work:
            return
        session.backend, self._coming = self._coming, None
        session.timeouts = timeouts_of(session.spec, session.backend)
        session.redact = session.redact.also(session.backend.plain)  # what was a secret stays one
        session.gate.renew()
        if session.live is not None:
            session.live.run.renew(session.timeouts)


def timeouts_of(spec: SessionSpec, backend: Backend) -> TurnTimeouts:
    """The timers of a session's turns: its own, else its backend's."""
    if not spec.timeouts:
        return backend.timeouts
    return replace(spec.merged_timeouts(backend.config.timeouts), resting=backend.timeouts.resting)

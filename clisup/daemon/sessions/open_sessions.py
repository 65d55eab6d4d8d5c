"""Which sessions are open, and which native session each of them writes: asked at each opening, so it is no walk over all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["OpenSessions"]


class OpenSessions:
    """An index over the sessions that are not closed. Who changes one of them says so: `settle`, `leave`."""

    def __init__(self) -> None:
        self._native: dict[str, str] = {}  # by session id
        self._writers: dict[str, dict[str, Session]] = {}  # by native id, then by session id

    def __len__(self) -> int:
        return len(self._native)

    def settle(self, session: Session) -> None:
        """It is open; and its native id may be another one than it was."""
        native = session.native_id
        if self._native.get(session.id) != native:
            self.leave(session)
            self._native[session.id] = native
            self._writers.setdefault(native, {})[session.id] = session

    def leave(self, session: Session) -> None:
        """It is closed. One that was not open is no error."""
        if (native := self._native.pop(session.id, None)) is not None:
            del self._writers[native][session.id]
            if not self._writers[native]:
                del self._writers[native]

    def writer_of(self, native: str) -> Session | None:
        """The open session that writes this native one."""
        return next(iter(self._writers.get(native, {}).values()), None)

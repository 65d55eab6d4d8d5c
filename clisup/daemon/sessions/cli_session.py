"""The CLI's own session behind ours: under which id the next run names it, and what its transcript says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clisup.errors import ClisupError
from clisup.model.sessions.ledger import Turn
from clisup.store.session_dir import RunDir
from clisup.store.transcripts import READ_LIMIT, appended, transcript_exists, transcript_size

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["NativeSession"]


class NativeSession:
    """One session's counterpart in its CLI. The transcript is only ever read."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def name(self, mode: str | None, run: int) -> tuple[str | None, bool]:
        """(native id, resume it?) for this run: the CLI's own transcript decides, or a turn that had completed.

        The id is None where the CLI chooses it for a new session. `mode` ("resume" or "fresh") is what a first try has
        shown to be right.
        """
        native = self._session.native_id
        resume = mode == "resume" if mode is not None else self._known(native)
        return (native, True) if resume else (self._fresh(native, run), False)

    def _fresh(self, native: str, run: int) -> str | None:
        can = self._session.backend.adapter.capabilities
        if not can.chosen_id:
            return None
        return native if run == 1 or not can.ids_once else f"{can.native_id_prefix}{run}{self._session.id}"

    def _known(self, native: str) -> bool:
        session, ledger = self._session, self._session.ledger
        if ledger.native_lost or (native == session.id and not session.backend.adapter.capabilities.chosen_id):
            return False  # the second: it has never told an id
        known = ledger.completed > 0 or session.spec.resume_native_id == native
        return known or transcript_exists(self.pattern())

    def written(self) -> int:
        """The size of its transcript: what a run adds to it comes after that."""
        return transcript_size(self.pattern())

    def evidence(self, turn: Turn, run_dir: RunDir) -> dict[str, Any]:
        """What the transcript says of a prompt whose fate nobody saw. Blocks: call it in a thread."""
        prompt = self._session.dir.load_prompt(turn.id)
        try:
            data = appended(self.pattern(), self._begin(turn, run_dir))
        except (OSError, ClisupError):
            return {"transcript": "unreadable"}
        if data is None or prompt is None:
            return {"transcript": "missing"}
        return {"transcript": self._session.backend.adapter.transcript_says(data, str(prompt["text"]))}

    def last_words(self, turn: Turn, run_dir: RunDir) -> bytes:
        """The end of what the CLI has added to its transcript in the turn, as far as it can be read. Blocks."""
        try:
            begin = max(self._begin(turn, run_dir), self.written() - READ_LIMIT)
            return appended(self.pattern(), begin) or b""
        except (OSError, ClisupError):
            return b""

    @staticmethod
    def _begin(turn: Turn, run_dir: RunDir) -> int:
        """The size of the transcript when the turn began."""
        return int(run_dir.intent().get("transcript_at", 0)) if turn.transcript_at is None else turn.transcript_at

    def pattern(self, native_id: str | None = None) -> str | None:
        """A glob for the CLI's transcript of this session, or of another native one, where this session's CLI keeps them."""
        backend = self._session.backend
        env = backend.own_environment(self._session.gate.brought)
        return backend.adapter.transcript_pattern(native_id or self._session.native_id, env)

"""Reasons in a run's events to end it: endless retries, and answers from another session."""

from __future__ import annotations

from typing import NamedTuple

from clisup.config.model import LimitsConfig
from clisup.model.events import BackendRetry, BackendStatus, EventBase, SessionInit, TurnError
from clisup.policy.watchdog import Patience, out_of_patience

__all__ = ["Fault", "RunLimits"]


class Fault(NamedTuple):
    """Reason to end a run: a word for the journal, and the turn's error."""

    reason: str
    error: TurnError


class RunLimits:
    """Limits of one run. `native_session_id` is the session for which the CLI was started, or None if the CLI chooses.

    `reset` tells whether the CLI has reported another conversation.
    """

    def __init__(self, limits: LimitsConfig, native_session_id: str | None, *, reset: bool = False) -> None:
        self._patience = Patience(limits.retries, limits.retry_wait_s)
        self._session = native_session_id
        self.reset = reset

    def fault(self, event: EventBase) -> Fault | None:
        """Return the fault of this event, or None."""
        if type(event) is BackendRetry and (error := out_of_patience(event, self._patience)) is not None:
            return Fault(f"retry:{error.kind}", error)
        if type(event) is SessionInit and self._is_another(event.native_session_id):
            return Fault("wrong_session", _OTHER_CONVERSATION if self.reset else _wrong_session(self._session))
        self.reset = self.reset or (type(event) is BackendStatus and event.status == "conversation_reset")
        return None

    def _is_another(self, said: str | None) -> bool:
        return said is not None and self._session is not None and said != self._session


_OTHER_CONVERSATION = TurnError(
    kind="invalid_request",
    message="the CLI began another conversation, but a session has one for good: nothing was cleared. Open a new session instead",
)


def _wrong_session(expected: str | None) -> TurnError:
    return TurnError(
        kind="session_not_found",
        message=f"the CLI answered from another session than {expected}: it does not know the one that was asked for",
    )

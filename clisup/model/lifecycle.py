"""Life of a session, as one table.

A session is `idle` between turns. A prompt makes it `starting`, or `waiting` while the cap on running turns holds it
back. The CLI's first frame makes it `running`, and the decision to end the process makes it `ending`. A turn's end
brings it back to `idle`, whatever the outcome: an outcome belongs to the turn, not to the session. `failed` is a
session whose CLI cannot be started again and again; a new prompt tries once more. `closed` is final. Every other
transition is a fault of the daemon and raises.
"""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    """State of a session, in the column STATE of `clisup status`."""

    IDLE = "idle"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    FAILED = "failed"
    CLOSED = "closed"


class Cause(StrEnum):
    """Cause of a change of state."""

    PROMPT = "prompt"
    SLOT = "slot"
    FIRST_FRAME = "first_frame"
    END = "end"
    TURN_OVER = "turn_over"
    CRASH_LOOP = "crash_loop"
    ADOPT = "adopt"
    CLOSE = "close"


_S, _C = SessionState, Cause

TRANSITIONS: dict[tuple[SessionState, Cause], SessionState] = {
    (_S.IDLE, _C.PROMPT): _S.WAITING,
    (_S.FAILED, _C.PROMPT): _S.WAITING,
    (_S.WAITING, _C.SLOT): _S.STARTING,
    (_S.IDLE, _C.ADOPT): _S.STARTING,
    (_S.STARTING, _C.FIRST_FRAME): _S.RUNNING,
    (_S.RUNNING, _C.FIRST_FRAME): _S.RUNNING,
    (_S.ENDING, _C.FIRST_FRAME): _S.ENDING,
    (_S.STARTING, _C.END): _S.ENDING,
    (_S.RUNNING, _C.END): _S.ENDING,
    (_S.ENDING, _C.END): _S.ENDING,
    (_S.WAITING, _C.TURN_OVER): _S.IDLE,
    (_S.STARTING, _C.TURN_OVER): _S.IDLE,
    (_S.RUNNING, _C.TURN_OVER): _S.IDLE,
    (_S.ENDING, _C.TURN_OVER): _S.IDLE,
    (_S.IDLE, _C.CRASH_LOOP): _S.FAILED,
    (_S.IDLE, _C.CLOSE): _S.CLOSED,
    (_S.FAILED, _C.CLOSE): _S.CLOSED,
    (_S.CLOSED, _C.CLOSE): _S.CLOSED,
}


def advance(state: SessionState, cause: Cause) -> SessionState:
    """Return the state after `cause`. Raises `RuntimeError` for a transition that the table does not hold."""
    try:
        return TRANSITIONS[state, cause]
    except KeyError:
        raise RuntimeError(f"a session that is {state} cannot {cause}") from None

"""Marker of a run in the environment of its processes: session, run, and the id of the state directory.

A copy of a state directory has the same sessions and runs. Only the id of the directory tells the processes of two daemons apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import NamedTuple

from clisup.host.files import storage_error

__all__ = ["RunMarker", "of_session", "run_in", "state_id"]

_SESSION, _RUN, _STATE = "CLISUP_SESSION", "CLISUP_RUN", "CLISUP_STATE_ID"
_SESSION_MARK = re.compile(rb"CLISUP_SESSION=([0-9a-f-]{36})")
_RUN_MARK = re.compile(rb"CLISUP_RUN=([0-9]{1,18})")
_STATE_MARK = f"{_STATE}=".encode()


class RunMarker(NamedTuple):
    """Name of a run that no other state directory of the machine shares."""

    session: str
    run: int
    state: str

    def variables(self) -> dict[str, str]:
        """Return the variables of the run's processes."""
        return {_SESSION: self.session, _RUN: str(self.run), _STATE: self.state}

    def marks(self, environ: Collection[bytes]) -> bool:
        """Tell whether a process with these variables belongs to the run."""
        return of_session(environ, self.session, self.state) and f"{_RUN}={self.run}".encode() in environ


def state_id(state_dir: str) -> str:
    """Return the id of a state directory: device and inode. A copy has another id. Raises `WorldError(storage_failed)`.

    A live keeper has files open in the directory, so no file system gives the directory another inode meanwhile.
    """
    try:
        found = os.stat(state_dir)
    except OSError as error:
        raise storage_error("read", state_dir, error) from None
    return f"{found.st_dev:x}.{found.st_ino:x}"


def of_session(environ: Collection[bytes], session_id: str, state: str) -> bool:
    """Tell whether a process with these variables belongs to the session of the state directory with the id `state`."""
    return f"{_SESSION}={session_id}".encode() in environ and _of_state(environ, state)


def run_in(environ: Collection[bytes], state: str) -> tuple[str, int] | None:
    """Return the (session, run) of a process with these variables, or None for a process of no run of the state directory.

    A process can carry any text as a marker. Only valid names of runs count, because paths are built from the names.
    """
    sessions = [match[1].decode() for entry in environ if (match := _SESSION_MARK.fullmatch(entry))]
    runs = [int(match[1]) for entry in environ if (match := _RUN_MARK.fullmatch(entry))]
    return (sessions[0], runs[0]) if sessions and runs and _of_state(environ, state) else None


def _of_state(environ: Collection[bytes], state: str) -> bool:
    """Tell whether the variables name this state directory, or none: clisup 0.1.0 started such a process."""
    named = [entry for entry in environ if entry.startswith(_STATE_MARK)]
    return not named or _STATE_MARK + state.encode() in named

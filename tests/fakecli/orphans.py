"""Processes that outlive their CLI, of the kinds that a supervisor meets. Each ends by itself after its seconds."""

from __future__ import annotations

import os
import subprocess
import time
from typing import NamedTuple

__all__ = ["KINDS", "leave_behind"]


class Orphan(NamedTuple):
    """Shell script that writes the survivor's pid to fd 3, and the things that it inherits.

    In the script `$1` is its lifetime in seconds, `$2` its end in seconds of the epoch, `$0` its own text.
    """

    script: str
    own_session: bool = False
    own_group: bool = False
    holds_stdout: bool = False
    clean_environment: bool = False


_TELL = "echo $$ >&3; exec 3>&-; "
_SLEEP = _TELL + 'exec sleep "$1"'
_DOUBLE_FORK = f"sh -c '{_SLEEP}' orphan \"$1\" & exit 0"
# Each generation starts the next one and exits, so a pid that a killer has just seen is gone.
_REFORK = (
    f'[ "$3" ] || {{ {_TELL} }}; [ "$(date +%s)" -lt "$2" ] && {{ sleep 0.05; sh -c "$0" "$0" "$1" "$2" again & }}'
)
_RESPAWN = _TELL + 'trap \'\' TERM; while [ "$(date +%s)" -lt "$2" ]; do sleep "$1"; done'
_STOPPED = _TELL + '(sleep "$1"; kill -KILL $$) & kill -STOP $$'
_MANY = _TELL + 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep "$1" & done; exec sleep "$1"'

KINDS: dict[str, Orphan] = {
    "plain": Orphan(_SLEEP),
    "setsid": Orphan(_SLEEP, own_session=True),
    "pgrp": Orphan(_SLEEP, own_group=True),
    "double-fork": Orphan(_DOUBLE_FORK, own_session=True),
    "holds-stdout": Orphan(_SLEEP, holds_stdout=True),
    "ignores-term": Orphan("trap '' TERM INT HUP; " + _SLEEP),
    "clean-env": Orphan(_SLEEP, clean_environment=True),
    "stopped": Orphan(_STOPPED),
    "refork": Orphan(_REFORK, own_session=True),
    "respawn": Orphan(_RESPAWN),
    "zombie-parent": Orphan("true & " + _SLEEP),
    "many": Orphan(_MANY),
}


def leave_behind(kind: str, seconds: float) -> int:
    """Start an orphan and return the pid of the process that stays."""
    orphan = KINDS[kind]
    read_end, write_end = os.pipe()
    try:
        subprocess.Popen(
            # The pid comes through a pipe on stdin: any other number would have to be free in both processes.
            ["/bin/sh", "-c", f"exec 3>&0 </dev/null; {orphan.script}", orphan.script, f"{seconds:g}",
             str(int(time.time() + seconds))],
            stdin=write_end, stdout=None if orphan.holds_stdout else subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=orphan.own_session, process_group=0 if orphan.own_group else None,
            env={"PATH": "/usr/bin:/bin"} if orphan.clean_environment else None,
        )  # fmt: skip
    finally:
        os.close(write_end)
    with os.fdopen(read_end) as report:
        return int(report.readline())

"""Failpoints: named places in the daemon where a test can kill it or make an operation fail.

An unarmed failpoint costs a look-up in a dict. `CLISUP_FAILPOINTS` in the environment of `clisup serve` arms them, as a
list of `NAME=ACTION[@FIRST[-[LAST]]]`:
    journal.after=kill@7            SIGKILL to the daemon itself, right after its 7th journal write
    file.write=ENOSPC@3-10          the 3rd to 10th write of a small file fail with that errno, the 11th works again
    journal.before=EIO@1-           every time, from the first on

The idea is that of FreeBSD's fail(9) and of SQLite's tests: strike at the n-th time, for n = 1, 2, ..., until a run of
the test meets the failpoint less than n times.
"""

from __future__ import annotations

import errno
import os
import re
import signal

from clisup.errors import ConfigurationError

VARIABLE = "CLISUP_FAILPOINTS"
FAILPOINTS: dict[str, str] = {
    "file.read": "before such a file is read",
    "file.write": "before a small file (session, prompt, intent, blob, exit record) is written",
    "file.rename": "when it is written under a scratch name, before its rename",
    "file.after": "when it has its name",
    "intent.before": "before a run's directory and intent are made",
    "intent.after": "when they are there",
    "spawn.before": "when turn_started is journaled, before the keeper's process is started",
    "spawn.after": "when it runs and knows nothing yet",
    "handover.after": "when it has its launch spec and has said its first word",
    "journal.before": "before each journal write",
    "journal.torn": "in the middle of each journal write, which is cut in two for that",
    "journal.after": "after each journal write, before anybody hears of it",
    "journal.mend": "before what a failed journal write has left is taken back",
    "journal.read": "before each read of the journal for a client",
    "segment.before": "before a new journal segment is made",
    "segment.after": "when it has its snapshot",
    "segment.mend": "before what a failed segment has left is removed",
    "sync.before": "before the journal is synced",
    "spool.read": "before each read of a spool",
    "spool.range": "before each read of a part of a spool, for a line of the CLI or a blob",
    "send.before": "before each frame to a client",
    "send.torn": "in the middle of each frame to a client, which is cut in two for that",
    "send.after": "after each frame to a client",
    "keeper.hello": "when a link to a keeper stands",
    "keeper.push": "when a keeper has said something, before it is heeded",
    "keeper.ack.before": "before a keeper's push is acknowledged",
    "keeper.ack.after": "when it is acknowledged",
    "keeper.stdin.before": "before a message for the CLI's stdin goes to its keeper",
    "keeper.stdin.after": "when it has been sent",
    "approval.before": "before the decision on an approval is journaled",
    "approval.after": "when it is journaled and on its way to the CLI",
    "say.journaled": "when what the daemon says on a CLI's stdin is journaled, before it goes to the keeper",
    "keeper.order.before": "before a keeper is told to end its run",
    "keeper.order.after": "when it has been told",
    "dead.before": "before a keeper that is gone without a record gets one",
    "end.before": "before a turn's end is journaled",
    "end.after": "when it is journaled, before its prompt is removed",
    "fork.begun": "when a transcript for a fork or a history is announced, before its first byte",
    "fork.copied": "when it is written under a scratch name, before it is synced",
    "fork.published": "when it has its name, before the new session's record is written",
    "fork.created": "when the record is there, before the scratch name is removed",
    "cursor.before": "before an acknowledged cursor is stored",
    "cursor.after": "when it is stored",
    "retention.before": "before each removal by retention",
    "retention.after": "after each removal by retention",
    "notify.before": "before each try to deliver a message of [[notify]]",
    "notify.after": "after it, before its cursor moves",
    "restart.before": "before a restart in place executes the daemon again",
}  # fmt: skip
_RULE = re.compile(r"([a-z.]+)=(kill|E[A-Z]+)(?:@(\d+)(-(\d*))?)?")


class _Plan:
    """Plan for one failpoint: the action, and the first and last time it takes effect."""

    def __init__(self, action: str, first: int, last: int | None) -> None:
        self._action, self._first, self._last = action, first, last
        self._met = 0

    def meet(self, name: str) -> None:
        """Count a visit, and carry out the action if this visit is within the plan."""
        self._met += 1
        if self._met < self._first or (self._last is not None and self._met > self._last):
            return
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, self._action)
        raise OSError(number, os.strerror(number), name)


ARMED: dict[str, _Plan] = {}
"""Armed failpoints by name. Code that runs for each line of output asks this first, which costs no call."""


def arm(spec: str) -> list[str]:
    """Arm the failpoints of `spec`, disarm all others, and return the armed names.

    Raises `ConfigurationError` for an invalid word.
    """
    plans = dict(_plan(word.strip()) for word in spec.split(",") if word.strip())
    ARMED.clear()
    ARMED.update(plans)
    return sorted(plans)


def _plan(word: str) -> tuple[str, _Plan]:
    match = _RULE.fullmatch(word)
    if match is None or match[1] not in FAILPOINTS or not (match[2] == "kill" or hasattr(errno, match[2])):
        raise ConfigurationError(
            f"cannot arm the failpoint {word[:80]!r}, because it is not NAME=kill or NAME=ERRNO, with @FIRST or @FIRST-LAST",
            hint=f"unset {VARIABLE}, which is for tests; the names are in clisup/host/failpoints.py",
        )
    first = int(match[3] or 1)
    last = None if match[4] and not match[5] else int(match[5] or first)
    return match[1], _Plan(match[2], first, last)


def failpoint(name: str) -> None:
    """Die or raise `OSError` here, if the failpoint is armed to do so."""
    if ARMED and (plan := ARMED.get(name)) is not None:
        plan.meet(name)

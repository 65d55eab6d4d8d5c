"""Approvals by the names that people type: a number, `1:0`, `3f2a/1:0`, or a session."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from clisup.cli.approval_numbers import MOST, ApprovalNumbers
from clisup.cli.lookup import SHORTEST
from clisup.cli.views.events import Event
from clisup.client.options import given
from clisup.errors import UsageError

__all__ = ["FoundApproval", "find_approval"]

_NUMBER = re.compile(rf"[1-9][0-9]{{0,{len(str(MOST)) - 1}}}")
_NAMED = re.compile(r"[1-9][0-9]{0,15}:.")
_LIST = "list them: clisup approvals"
_LONG = 12
"""Characters of a CLI's own id at least, so that its beginning is enough. Short ids are counters: `1` begins `10`."""

_LEAST = 4
"""Characters of the beginning of such an id."""


class FoundApproval(NamedTuple):
    """Approval that was named: `event` is None if it is not open any more. Then the daemon reports the reason."""

    session_id: str | None
    approval_id: str
    event: Event | None

    @property
    def ids(self) -> dict[str, str]:
        """Return the ids as params."""
        return given({"session_id": self.session_id, "approval_id": self.approval_id})


def find_approval(
    pending: list[Event], wanted: str, numbers: ApprovalNumbers, find_session: Callable[[str], str]
) -> FoundApproval:
    """Return the approval that `wanted` names. Raises `UsageError(usage)` if it names none, or more than one."""
    if _NUMBER.fullmatch(wanted):
        return _by_number(pending, int(wanted), numbers)
    prefix, _, rest = wanted.rpartition("/") if ":" not in wanted.partition("/")[0] else ("", "", wanted)
    if ":" not in rest:
        return _by_session(pending, wanted, find_session)
    of_session = [a for a in pending if a["session_id"].startswith(prefix.lower())]
    found = [a for a in of_session if a["approval_id"] == rest] or [
        a for a in of_session if _begins(a["approval_id"], rest)
    ]
    if found:
        return _only(found, wanted)
    if not _NAMED.match(rest):
        raise _no_name(wanted)
    return FoundApproval(find_session(prefix) if prefix else None, rest, None)


def _by_number(pending: list[Event], number: int, numbers: ApprovalNumbers) -> FoundApproval:
    """Return the approval that the list showed under the number. A number that no list has shown names nothing."""
    named = numbers.named(number)
    if named is None:
        raise UsageError(f"no list has shown an approval with the number {number}", kind="usage", hint=_LIST)
    for approval in pending:
        if (approval["session_id"], approval["approval_id"]) == named[:2]:
            return _found(approval)
    return FoundApproval(named.session_id, named.approval_id, None)


def _by_session(pending: list[Event], wanted: str, find_session: Callable[[str], str]) -> FoundApproval:
    if len(wanted) < SHORTEST:
        raise _no_name(wanted)
    if found := [a for a in pending if a["session_id"].startswith(wanted.lower())]:
        return _only(found, wanted)
    session_id = find_session(wanted)
    raise UsageError(f"session {session_id[:8]} has no pending approval", kind="usage", hint=_LIST)


def _no_name(wanted: str) -> UsageError:
    message = f"no approval is called {wanted!r}: approvals are named by their number, 1:0 or 3f2a9c1e/1:0"
    return UsageError(message, kind="usage", hint=_LIST)


def _begins(approval_id: str, typed: str) -> bool:
    run, _, name = approval_id.partition(":")
    typed_run, _, begin = typed.partition(":")
    if run != typed_run or len(name) < _LONG or name.isdecimal() or len(begin) < _LEAST:
        return False
    return name.startswith(begin) and not name[len(begin) :].startswith("#")  # `#2` is another request


def _only(found: list[Event], wanted: str) -> FoundApproval:
    if len(found) > 1:
        names = ", ".join(f"{a['session_id'][:8]}/{a['approval_id']}" for a in found[:5])
        raise UsageError(
            f"approval {wanted!r} is ambiguous, because {len(found)} ids match",
            kind="usage",
            hint=f"give one of: {names}",
        )
    return _found(found[0])


def _found(approval: Event) -> FoundApproval:
    return FoundApproval(approval["session_id"], approval["approval_id"], approval)

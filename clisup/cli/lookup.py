"""Sessions by the beginning of their id, as people type them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clisup.client.raw import RawClient
from clisup.errors import UsageError

__all__ = ["SHORTEST", "all_sessions", "find_session", "pick"]

SHORTEST = 4
_UUID_LENGTH = 36
_PAGE = 1000


def all_sessions(
    client: RawClient, *, state: str | None = None, labels: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all sessions with `labels`, newest first. Without `state`, leave out closed sessions."""
    cursor: str | None = None
    while True:
        wanted: dict[str, Any] = ({"state": state} if state else {}) | ({"labels": labels} if labels else {})
        after: dict[str, str] = {"cursor": cursor} if cursor else {}
        page = client.call("session/list", limit=_PAGE, **wanted, **after)
        yield from page["sessions"]
        cursor = page.get("next_cursor")
        if not cursor:
            return


def find_session(client: RawClient, prefix: str) -> str:
    """Return the id of the one session, open or closed, that begins with `prefix`.

    Raises `UsageError` of kind session_not_found or usage.
    """
    return pick(
        prefix, lambda: (s["session_id"] for s in (*all_sessions(client), *all_sessions(client, state="closed")))
    )


def pick(prefix: str, ids: Callable[[], Iterable[str]]) -> str:
    """Return the one id that begins with `prefix`. Ask for `ids` only if `prefix` is not a whole id."""
    prefix = prefix.lower()
    if len(prefix) == _UUID_LENGTH:
        return prefix  # the daemon reports an unknown id itself
    if len(prefix) < SHORTEST:
        raise UsageError(
            f"session id {prefix!r} is too short: give at least {SHORTEST} characters",
            kind="usage",
            hint="list the sessions: clisup sessions",
        )
    found = [id_ for id_ in ids() if id_.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no session matches {prefix!r}", kind="session_not_found", hint="list the sessions: clisup sessions"
        )
    names = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    raise UsageError(
        f"session id {prefix!r} is ambiguous, because {len(found)} ids begin with it",
        kind="session_not_found",
        hint=f"give more of the id: {names}",
    )

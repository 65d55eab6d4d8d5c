"""Sessions by the beginning of their id, as people type them. Light: see `clisup.cli.main`."""

from __future__ import annotations

from clisup.client.raw import RawClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from clisup.errors import UsageError

__all__ = ["SHORTEST", "all_sessions", "find_session", "pick"]

SHORTEST = 4
_UUID_LENGTH = 36
_PAGE = 1000


def all_sessions(
    client: RawClient, *, state: str | None = None, labels: dict[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Summaries by page, newest first, of those with all of `labels`. Without `state`, all that are not closed."""
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
    """The one session whose id begins with `prefix`, closed ones too. Raises `UsageError`: session_not_found, usage."""
    return pick(prefix, lambda: [*all_sessions(client), *all_sessions(client, state="closed")])


def pick(prefix: str, summaries: Callable[[], list[dict[str, Any]]]) -> str:
    """As `find_session`, among `summaries`, which are asked for where `prefix` is no whole id."""
    prefix = prefix.lower()
    if len(prefix) == _UUID_LENGTH:
        return prefix  # the daemon knows it or says that it does not
    if len(prefix) < SHORTEST:
        from clisup.errors import UsageError

        raise UsageError(
            f"cannot look for session {prefix!r}, because {SHORTEST} characters of its id are the least",
            kind="usage",
            hint="list them: clisup sessions",
        )
    found = [s["session_id"] for s in summaries() if s["session_id"].startswith(prefix)]
    if len(found) == 1:
        return str(found[0])
    raise _not_one(prefix, found)


def _not_one(prefix: str, found: list[str]) -> UsageError:
    from clisup.errors import UsageError

    if not found:
        reason = f"cannot find session {prefix!r}, because no session's id begins so"
        return UsageError(reason, kind="session_not_found", hint="list them: clisup sessions")
    names = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    return UsageError(
        f"cannot tell which session {prefix!r} is, because {len(found)} ids begin so",
        kind="session_not_found",
        hint=f"give more of the id: {names}",
    )

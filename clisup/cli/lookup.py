"""Sessions by the beginning of their id, as people type them, and their stored events. A wrong one gets the nearest sessions."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator

from clisup.cli.views.terminal import clip
from clisup.client.raw import PAGE, JsonObject, RawClient, stored
from clisup.errors import ClisupError, UsageError

__all__ = [
    "SHORTEST",
    "all_sessions",
    "by_time",
    "every_session",
    "find_session",
    "pick",
    "stored",
    "stored_of_all",
]

SHORTEST = 4
"""Characters of an id's beginning at least."""

HELD = 20_000
"""Limit of events of all sessions together in memory, while they are merged."""

CANDIDATES = 3
"""Limit of sessions that the hint of an error names."""

_LIKE = 0.7  # of 1; random ids are less alike
_UUID = re.compile(r"[0-9a-f-]{36}")
_SESSIONS_PAGE = 1000
_LEAST_PAGE = 10


def all_sessions(
    client: RawClient, *, state: str | None = None, labels: dict[str, str] | None = None
) -> Iterator[JsonObject]:
    """Yield the rows of all sessions with `labels`, newest first. Without `state`, leave out closed sessions."""
    cursor = None
    while True:
        wanted = {"state": state, "labels": labels, "cursor": cursor}
        page = client.call(
            "session/list", limit=_SESSIONS_PAGE, **{name: value for name, value in wanted.items() if value}
        )
        yield from page["sessions"]
        if not (cursor := page.get("next_cursor")):
            return


def every_session(client: RawClient) -> list[JsonObject]:
    """Return the rows of all sessions: first the open ones, then the closed ones."""
    return [*all_sessions(client), *all_sessions(client, state="closed")]


def find_session(client: RawClient, prefix: str) -> str:
    """Return the id of the one session, open or closed, that begins with `prefix`.

    Raises `UsageError` of kind session_not_found or usage.
    """
    return pick(prefix, lambda: every_session(client))


def pick(prefix: str, sessions: Callable[[], Iterable[JsonObject]]) -> str:
    """Return the one id that begins with `prefix`. Ask for `sessions` only if `prefix` is not a whole id.

    `sessions` returns their rows: `session_id`, and `title` if it is known.
    """
    prefix = prefix.lower()
    if _UUID.fullmatch(prefix):
        return prefix  # the daemon reports an unknown id itself
    if len(prefix) < SHORTEST:
        raise UsageError(
            f"session id {prefix!r} is too short: give at least {SHORTEST} characters",
            kind="usage",
            hint="list the sessions: clisup sessions",
        )
    rows = list(sessions())
    found = [str(row["session_id"]) for row in rows if row["session_id"].startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        near = " or ".join(_nearest(prefix, rows))
        hint = f"did you mean {near}? All of them: clisup sessions" if near else "list the sessions: clisup sessions"
        raise UsageError(f"no session matches {prefix!r}", kind="session_not_found", hint=hint)
    names = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    raise UsageError(
        f"session id {prefix!r} is ambiguous, because {len(found)} ids begin with it",
        kind="session_not_found",
        hint=f"give more of the id: {names}",
    )


def _nearest(wanted: str, rows: Iterable[JsonObject]) -> list[str]:
    """Return the sessions that may be meant, as `3f2a9c1e (Mend the parser)`: by the id's beginning, or by words of the title."""
    from difflib import SequenceMatcher, get_close_matches  # only a wrong name needs it

    words = re.findall(r"\w+", wanted)

    def likeness(row: JsonObject) -> float:
        id_ = row["session_id"]
        of_id = SequenceMatcher(None, wanted, id_[: len(wanted)], autojunk=False).ratio()
        of_id = max(of_id, float(wanted.startswith(id_[:SHORTEST])))
        title = re.findall(r"\w+", str(row.get("title") or "")[:200].lower())
        meant = sum(bool(get_close_matches(word, title, n=1, cutoff=_LIKE)) for word in words)
        return max(of_id, meant / len(words) if words else 0.0)

    alike = [(likeness(row), row) for row in rows]
    best = heapq.nlargest(CANDIDATES, [pair for pair in alike if pair[0] >= _LIKE], key=lambda pair: pair[0])
    return [row["session_id"][:8] + (f" ({clip(row['title'], 40)})" if row.get("title") else "") for _, row in best]


# -- stored events ------------------------------------------------------------------------------------------------------


def stored_of_all(client: RawClient, *, raw: bool) -> Iterator[JsonObject]:
    """Yield the stored events of every session, closed ones too, by time."""
    ids = [s["session_id"] for s in every_session(client)]
    page_size = min(PAGE, max(_LEAST_PAGE, HELD // max(1, len(ids))))
    return by_time(stored(client, session_id, page_size=page_size, raw=raw) for session_id in ids)


def by_time(histories: Iterable[Iterable[JsonObject]]) -> Iterator[JsonObject]:
    """Merge the events of several sessions by time. Events of one session keep their order."""
    return (event for _, event in heapq.merge(*map(_dated, histories), key=lambda dated: dated[0]))


def _dated(events: Iterable[JsonObject]) -> Iterator[tuple[str, JsonObject]]:
    """Yield each event with its time; a gap has the time of the event before it. A session deleted meanwhile ends."""
    ts = ""
    try:
        for event in events:
            ts = event.get("ts") or ts
            yield ts, event
    except ClisupError as error:
        if error.kind != "session_not_found":
            raise

"""Exchanges of a CLI's transcript, and their turns: the places where a fork may cut. Pure.

An exchange is a prompt, a compaction or work of the CLI itself, with all that follows. Message ids decide whose an exchange is.
Without one, the prompt identifies the turn, among the lines of its run and between the exchanges of the neighbouring turns.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from clisup.backends.frames import Frame
from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace

__all__ = [
    "Exchange", "check_length", "has_end_of", "last_exchange", "own_by_prompt", "parse_entry", "prompt_mark",
]  # fmt: skip

LINES_LIMIT = 2_000_000
"""Lines of a transcript that can be forked."""

_COMPACT = "/compact"
_SPACES_CUT = 64  # whitespace at a prompt's ends, which the CLI may remove
_COMPARED = 100
_LOOKS = 1000  # exchanges to search for a turn without a message id


class Exchange(Struct):
    """Part of a transcript from `begin` to `end`, in the unit of the caller. `place` is the byte where it begins.

    `owner` is the index of its turn, or None without a turn of clisup. `prompt` is made by `prompt_mark`, None for a compaction.
    """

    begin: int
    end: int
    place: int
    owner: int | None = None
    prompt: tuple[str, int] | None = None


def check_length(lines: int) -> None:
    """Raise `UsageError(limit_exceeded)` if no line may follow so many."""
    if lines >= LINES_LIMIT:
        message = f"cannot fork, because the transcript has more than {LINES_LIMIT} lines"
        raise UsageError(message, kind="limit_exceeded")


def parse_entry(line: bytes) -> Frame | None:
    """Return the JSON object of a line, or None. A line with half a surrogate pair counts."""
    try:
        entry = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return entry if isinstance(entry, dict) else None


def prompt_mark(words: str) -> tuple[str, int]:
    """Return the stripped head of a prompt, and the prompt's length in bytes."""
    return words[:_COMPARED].strip(), len(words.encode("utf-8", "replace"))


def own_by_prompt(parts: Sequence[Exchange], turns: Sequence[TurnTrace]) -> None:
    """Set the owners of exchanges without one, by their prompts."""
    free = [at for at, part in enumerate(parts) if part.owner is None]
    last_of = {part.owner: at for at, part in enumerate(parts) if part.owner is not None}
    roofs = _roofs(parts, len(turns))
    floor = -1
    for place, turn in enumerate(turns):
        if place not in last_of:
            looked = free[bisect_right(free, floor) :][:_LOOKS]
            fitting = (at for at in looked if at < roofs[place] and _asks(parts[at], turn))
            if (found := next(fitting, None)) is not None:
                parts[found].owner, last_of[place] = place, found
        floor = max(floor, last_of.get(place, -1))


def _roofs(parts: Sequence[Exchange], turns: int) -> list[int]:
    """Return for each turn the first exchange of a later turn."""
    first = [len(parts)] * (turns + 1)
    for at, part in reversed(list(enumerate(parts))):
        if part.owner is not None:
            first[part.owner] = at
    for place in reversed(range(turns)):
        first[place] = min(first[place], first[place + 1])
    return first[1:]


def _asks(part: Exchange, turn: TurnTrace) -> bool:
    """Tell whether this is the beginning of the turn's prompt."""
    if (turn.at is not None and part.place < turn.at) or (turn.until is not None and part.place >= turn.until):
        return False
    preview = (turn.prompt_preview or "").strip()
    if part.prompt is None:
        return preview.startswith(_COMPACT)
    head, size = part.prompt
    if head and head == preview[:_COMPARED].strip():
        return True
    return turn.at is not None and turn.prompt_bytes is not None and 0 <= turn.prompt_bytes - size <= _SPACES_CUT


def last_exchange(parts: Sequence[Exchange], place: int) -> Exchange | None:
    """Return the last exchange of the turn at `place` or of a turn before it, or None without one."""
    later = next((at for at, part in enumerate(parts) if part.owner is not None and part.owner > place), len(parts))
    return next((part for part in reversed(parts[:later]) if part.owner is not None), None)


def has_end_of(turn: TurnTrace, written: Sequence[str | None]) -> bool:
    """Tell whether the transcript has the last message of the turn. A CLI may write some 100 ms after its output."""
    ids = set(written) - {None}
    return not turn.message_ids or not ids or turn.message_ids[-1] in ids

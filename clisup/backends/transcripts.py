"""Rules for a CLI's own transcripts: to copy one (fork), to write one (history), and to find a prompt in one. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from clisup.backends.frames import Frame
from clisup.model.prompts.history import HistoryMessage
from clisup.model.sessions.turn_trace import TurnTrace
from clisup.model.usage import Usage

__all__ = [
    "ForkPlan", "ForkRules", "Seed", "SeedRules", "TranscriptWord", "find_prompt", "json_line", "messages_after",
    "own_directory", "texts_of",
]  # fmt: skip

TranscriptWord = Literal["answered", "prompt_found", "prompt_not_found"]
"""Evidence in a transcript about the prompt of a run."""


class ForkPlan(NamedTuple):
    """Parts of a transcript that make a fork."""

    parts: Sequence[tuple[int, int]]
    """Start and end of each part, in order. A part has whole lines."""
    complete: bool
    """The transcript has the end of the turn. A CLI may write late, so the daemon plans again after a pause if it is missing."""
    usage_total: Usage | None = None
    """Tokens that the CLI's running total begins with in the fork. None: the total begins at zero."""


class ForkRules(Protocol):
    """Rules to copy a CLI's transcript to a new native session. The daemon reads and writes the files."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Plan a fork at the end of turn `upto`, which is one of `turns`. With `whole`, plan a copy of everything.

        `upto` is None only without turns, and `whole` is then set.

        Raises `UsageError`: turn_not_found, limit_exceeded.
        """

    def copy(self, line: bytes, native_session_id: str) -> bytes:
        """Return a line of the plan as it stands in the copy."""


class Seed(NamedTuple):
    """A history, and the session that begins with it."""

    history: Sequence[HistoryMessage]
    native_session_id: str
    cwd: str
    """A real path, without symbolic links."""
    model: str | None
    """Model of the session."""
    at: str
    """Time in RFC 3339."""

    def entry_id(self, number: int) -> str:
        """Return the uuid of an entry. The same seed gives the same uuids."""
        return str(uuid.uuid5(uuid.UUID(self.native_session_id), f"history/{number}"))


class SeedRules(Protocol):
    """Rules to write a history. The daemon writes the file, whole or not at all."""

    def path(self, seed: Seed, env: Mapping[str, str]) -> str | None:
        """Return the path of the file. Its name ends with the id and `.jsonl`.

        Return None if the environment does not tell the CLI's directory.
        """

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file in order, each with its newline."""


def find_prompt(
    appended: bytes,
    read: Callable[[Frame], tuple[str, str]],
    wanted: Collection[str],
    *,
    answerer: str = "assistant",
) -> TranscriptWord:
    """Tell whether the JSON lines hold the prompt in one of its `wanted` forms, and an answer of `answerer` after it.

    `read` gives role and text of an entry, and may raise for an entry of another shape. White space and the zero-width space that
    hides a mention do not count: adapters change prompts in these ways only.
    """
    found, forms = False, {_words(form) for form in wanted}
    for line in appended.splitlines():
        try:
            role, text = read(json.loads(line))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # no message, or the incomplete last line of a killed CLI
        if role == "user" and _words(text) in forms:
            found = True
        elif found and role == answerer:
            return "answered"
    return "prompt_found" if found else "prompt_not_found"


def messages_after(
    tail: bytes, read: Callable[[Frame], tuple[str, str]], moment: str, *, answerer: str = "assistant"
) -> int:
    """Return how many messages at the end of the JSON lines were made after `moment` (RFC 3339).

    `read` is as in `find_prompt`. An entry without a `timestamp` does not count. A CLI makes an entry before its report of the
    turn's end, even where it writes the entry later.
    """
    count, end = 0, datetime.fromisoformat(moment)
    for line in reversed(tail.splitlines()):
        try:
            entry = json.loads(line)
            role, _ = read(entry)
            made = datetime.fromisoformat(entry["timestamp"])
            late = made > end
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        if role in ("user", answerer):
            if not late:
                break
            count += 1
    return count


def json_line(entry: Frame) -> bytes:
    """Return an entry as a line of compact JSON. Half a surrogate pair, impossible in UTF-8, stays an escape."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def own_directory(env: Mapping[str, str], default: str, *variables: str) -> str | None:
    """Return a CLI's own directory: the first of `variables` with a value, else `default` in HOME, else None."""
    named = next((env[name] for name in variables if env.get(name)), None)
    home = env.get("HOME")
    path = named or (f"{home}/{default}" if home else None)
    return path.rstrip("/") if path is not None else None


def texts_of(content: object) -> list[str]:
    """Return the texts of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _words(text: str) -> str:
    return " ".join(text.replace("\u200b", "").split())

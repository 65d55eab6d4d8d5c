"""Rules of a fork: a copy of codex's rollout file, whole or up to a turn (facts from codex-cli 0.169.0). Pure.

A rollout file is a list: a resume reads it from its first line to its last. `task_started` begins a turn of codex, `task_complete` or
`turn_aborted` ends it. A copy up to a turn is the beginning of the file, so compactions and rollbacks of later turns are not in it.

Only `session_meta` names the thread that the file is of: the ids in other lines do not count. codex finds a file by the id in its
name. A resumed thread goes on with the last total of its file, so a fork does, too. A thread that codex itself has forked
(`thread/fork`) has only its own turns in its file, and names the file of its source in `history_base`. So does a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clisup.backends.base import ForkPlan
from clisup.backends.codex.native_sessions import prompt_of
from clisup.backends.codex.notices import usage_of
from clisup.backends.exchanges import (
    Exchange,
    check_length,
    has_end_of,
    last_exchange,
    own_by_prompt,
    parse_entry,
    prompt_mark,
)
from clisup.backends.frames import Frame, get_dict, get_str
from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace
from clisup.model.usage import Usage

__all__ = ["CodexFork"]

_META = b'"type":"session_meta"'
_ENDS = ("task_complete", "turn_aborted")


class _Rollout:
    """Places of the lines in a rollout file, and its exchanges. `begin` and `end` of an exchange count lines."""

    def __init__(self, lines: Iterable[bytes], turns: Sequence[TurnTrace]) -> None:
        self.spans: list[tuple[int, int]] = []
        self.exchanges: list[Exchange] = []
        self.ids: list[str | None] = []
        self.totals: list[tuple[int, Usage]] = []
        """Running totals of the thread, each with the count of the lines up to it."""
        self.open = False
        """The last turn of codex has no end."""
        self._owners = {message: place for place, turn in enumerate(turns) for message in turn.message_ids}
        at = 0
        for line in lines:
            start, at = at, at + len(line)
            if line.endswith(b"\n"):  # the last line of a killed CLI may be incomplete
                self._add(line, start, at)
        own_by_prompt(self.exchanges, turns)

    def _add(self, line: bytes, start: int, end: int) -> None:
        check_length(len(self.spans))
        entry = parse_entry(line) or {}
        payload = get_dict(entry, "payload")
        event = get_str(payload, "type") if entry.get("type") == "event_msg" else None
        if event == "task_started":
            self.exchanges.append(Exchange(len(self.spans), len(self.spans), start))
        if event == "token_count" and (told := get_dict(get_dict(payload, "info"), "total_token_usage")):
            self.totals.append((len(self.spans) + 1, usage_of(told, snake=True)))
        self.open = event == "task_started" or (self.open and event not in _ENDS)
        self.spans.append((start, end))
        self._see(get_dict(payload, "item") if event == "item_completed" else payload, payload)

    def total_at(self, end: int) -> Usage | None:
        """Return the running total after so many lines."""
        return next((total for at, total in reversed(self.totals) if at <= end), None)

    def _see(self, item: Frame, payload: Frame) -> None:
        """Keep the id of an item, and the first prompt of its exchange."""
        id_ = get_str(item, "id")
        self.ids.append(id_)
        if not self.exchanges:
            return
        exchange = self.exchanges[-1]
        exchange.end = len(self.spans)
        exchange.owner = self._owners.get(id_ or "", exchange.owner)
        if exchange.prompt is None and (prompt := prompt_of(payload)):
            exchange.prompt = prompt_mark(prompt.strip())


class CodexFork:
    """Rules of a fork of codex."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Plan the lines of the fork: all lines, or those up to the end of turn `upto`.

        Raises `UsageError`: turn_not_found if the file has nothing of the turn, limit_exceeded.
        """
        rollout = _Rollout(lines, turns)
        place = next((at for at, turn in enumerate(turns) if turn.turn_id == upto), None)
        written = place is None or has_end_of(turns[place], rollout.ids)
        if whole and rollout.spans:
            return ForkPlan(rollout.spans, written and not rollout.open, rollout.total_at(len(rollout.spans)))
        last = None if place is None else last_exchange(rollout.exchanges, place)
        if place is None or last is None or (turns[place].message_ids and not _has_any(rollout, place)):
            raise UsageError(
                f"cannot fork at turn {upto or '0'}, because the CLI's transcript does not hold it",
                kind="turn_not_found",
                hint="codex was killed before it wrote; fork at another turn, or open a new session",
            )
        complete = written and not (rollout.open and last.end == len(rollout.spans))
        return ForkPlan(rollout.spans[: last.end], complete, rollout.total_at(last.end))

    def copy(self, line: bytes, native_session_id: str) -> bytes:
        """Return a line of the plan as it stands in the copy. Only the id of the thread changes."""
        meta = get_dict(parse_entry(line) or {}, "payload") if _META in line[:200] else {}
        if (old := get_str(meta, "id")) is None:
            return line
        return line.replace(f'"{old}"'.encode(), f'"{native_session_id}"'.encode())


def _has_any(rollout: _Rollout, place: int) -> bool:
    return any(exchange.owner == place for exchange in rollout.exchanges)

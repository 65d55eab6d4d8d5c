"""A copy of claude's transcript under another id, whole or up to the end of a turn. Pure; the source is only read.

The copy keeps the entries' own uuids, as `--fork-session` does (2.1.329), so whatever names one still finds it. It leaves out
`api-request*` (the requests' shapes, for the CLI's own use), `cost-state` (the copy's cost begins at zero), `queue-operation` (the
queue of a process that is gone) and what points to an entry that is not copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from clisup.backends.base import ForkPlan
from clisup.backends.claude.conversation import Node, chain_of, exchanges_of, nodes_of, parse_entry
from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace

__all__ = ["ClaudeFork"]

_DROPPED = ("api-request", "cost-state", "queue-operation")


class ClaudeFork:
    """The rules of a fork, for claude and whoever writes transcripts as it does."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Which lines of a transcript make the fork: all of them, or those of the conversation up to the end of turn `upto`.

        `lines` come with their newlines; only a few facts of each are kept in memory. With `whole`, `upto` is the last turn and
        only says what has to be there for the copy to be complete. Raises `UsageError(turn_not_found)` where the transcript
        holds nothing of the turn, or nothing at all.
        """
        nodes = nodes_of(lines)
        chain = chain_of(nodes)
        place = next((at for at, turn in enumerate(turns) if turn.turn_id == upto), None)
        complete = place is None or _has_end_of(turns[place], [nodes[i].message_id for i in chain])
        if whole and chain:
            return ForkPlan(_spans(node for node in nodes if not node.kind.startswith(_DROPPED)), complete)
        end = 0 if place is None else _end_of(nodes, chain, turns, place)
        if not end:
            raise UsageError(
                f"cannot fork at turn {upto or '0'}, because the CLI's transcript holds nothing of it or of a turn before it",
                kind="turn_not_found",
                hint="open a new session",
            )
        return ForkPlan(_spans(_taken(nodes, chain[:end])), complete)

    def copy(self, line: bytes, native_session_id: str) -> bytes:
        """One line of the plan, as it stands in the copy. Nothing in it changes but the session's id."""
        entry = parse_entry(line) or {}
        if not isinstance(old := entry.get("sessionId"), str):
            return line
        before, after = (f'"sessionId":{json.dumps(id_)}'.encode() for id_ in (old, native_session_id))
        if before in line:
            return line.replace(before, after)
        # Written by hand, with spaces: a line with spaces is not found from another directory.
        return json.dumps({**entry, "sessionId": native_session_id}, separators=(",", ":")).encode() + b"\n"


def _has_end_of(turn: TurnTrace, written: Sequence[str | None]) -> bool:
    """Has the CLI written the last that the journal knows of the turn? It writes up to 100 ms after it has said it."""
    ids = set(written) - {None}
    return not turn.message_ids or not ids or turn.message_ids[-1] in ids


def _end_of(nodes: Sequence[Node], chain: Sequence[int], turns: Sequence[TurnTrace], place: int) -> int:
    """How much of the chain is up to the end of this turn: its last exchange, or that of a turn before it."""
    parts, turn = exchanges_of(nodes, chain, turns), turns[place]
    has_ids = any(nodes[i].message_id for i in chain)
    if turn.message_ids and has_ids and all(part.owner != place for part in parts):
        raise UsageError(
            f"cannot fork at turn {turn.turn_id}, because the CLI's transcript does not hold it",
            kind="turn_not_found",
            hint="the session was rewound or cleared there, or the CLI was killed before it wrote; fork at another turn",
        )
    later = next((at for at, part in enumerate(parts) if part.owner is not None and part.owner > place), len(parts))
    ours = [part for part in parts[:later] if part.owner is not None]
    if not ours:
        return 0
    end = ours[-1].end
    while end > ours[-1].begin + 1 and _is_after(nodes[chain[end - 1]], turn):
        end -= 1
    return end


def _is_after(node: Node, turn: TurnTrace) -> bool:
    """Was it written for the next prompt, although it stands before it?"""
    return node.filler or (turn.until is not None and node.start >= turn.until)


def _taken(nodes: Sequence[Node], chain: Sequence[int]) -> list[Node]:
    """The entries of the chain, the results of parallel tools beside it, and what else was written before its end."""
    kept, taken = set(chain), []
    for at, node in enumerate(nodes[: chain[-1] + 1]):
        if node.is_result and node.parent in kept:
            kept.add(at)
        beside = node.side or (node.uuid is None and not node.kind.startswith(_DROPPED))
        if at in kept or beside:
            taken.append(node)
    uuids = {node.uuid for node in taken}
    return [node for node in taken if node.leaf is None or node.leaf in uuids]


def _spans(nodes: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    return tuple((node.start, node.end) for node in nodes)

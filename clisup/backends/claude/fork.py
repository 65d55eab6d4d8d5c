"""Copy of claude's transcript under another id, whole or up to the end of a turn. Pure: the source is only read.

The copy keeps the uuids of the entries, as `--fork-session` does (2.1.329). It leaves out `api-request*` (for the CLI's own use),
`cost-state` (the cost of the copy begins at zero), `queue-operation` (the queue of an ended process) and pointers to entries that
are not in the copy.
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
    """Rules of a fork, for claude and for backends with the same transcripts."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Plan the lines of the fork: all lines, or those of the conversation up to the end of turn `upto`.

        `lines` have their newlines; memory holds only a few facts of each. With `whole`, `upto` is the last turn and only decides
        whether the copy is complete. Raises `UsageError(turn_not_found)` if the transcript has nothing of the turn.
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
        """Return a line of the plan as it stands in the copy. Only the session id changes."""
        entry = parse_entry(line) or {}
        if not isinstance(old := entry.get("sessionId"), str):
            return line
        before, after = (f'"sessionId":{json.dumps(id_)}'.encode() for id_ in (old, native_session_id))
        if before in line:
            return line.replace(before, after)
        # A person wrote this line, with spaces: claude does not find lines with spaces from another directory.
        return json.dumps({**entry, "sessionId": native_session_id}, separators=(",", ":")).encode() + b"\n"


def _has_end_of(turn: TurnTrace, written: Sequence[str | None]) -> bool:
    """Tell whether the transcript has the last part of the turn. The CLI writes up to 100 ms after its output."""
    ids = set(written) - {None}
    return not turn.message_ids or not ids or turn.message_ids[-1] in ids


def _end_of(nodes: Sequence[Node], chain: Sequence[int], turns: Sequence[TurnTrace], place: int) -> int:
    """Return the length of the chain up to the end of this turn: its last exchange, or that of a turn before."""
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
    """Tell whether the CLI wrote this entry for the next prompt, although the entry stands before that prompt."""
    return node.filler or (turn.until is not None and node.start >= turn.until)


def _taken(nodes: Sequence[Node], chain: Sequence[int]) -> list[Node]:
    """Return the entries of the chain, parallel tool results beside it, and all other entries before its end."""
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

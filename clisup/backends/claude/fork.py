"""Rules of a fork: a copy of claude's transcript, whole or up to a turn. Pure.

A transcript (2.1.329) has compact JSON lines. The conversation is a chain: each entry names its `parentUuid`, and a resume goes on
from the newest entry, the leaf. Three things complicate the chain. Results of parallel tools hang on their own calls, and only the
last result is in the chain. A compaction begins a new chain, whose `logicalParentUuid` is the end of the old one. Rewinding leaves
branches without a leaf.

A copy keeps the uuids of the entries, as `--fork-session` does. It leaves out `api-request*` (for the CLI's own use), `cost-state`
(the cost of the copy begins at zero), `queue-operation` (the queue of an ended process) and pointers to entries that are not in
the copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from clisup.backends.base import ForkPlan
from clisup.backends.exchanges import (
    Exchange,
    check_length,
    has_end_of,
    last_exchange,
    own_by_prompt,
    parse_entry,
    prompt_mark,
)
from clisup.backends.frames import Frame, get_str
from clisup.backends.transcripts import texts_of
from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace

__all__ = ["ClaudeFork"]

_DROPPED = ("api-request", "cost-state", "queue-operation")
_INTERRUPTED = "[Request interrupted by user"
_LOCAL = ("<local-command-", "<command-name>", "<command-message>")  # notes of the CLI about its own commands
_NO_ANSWER = "No response requested."


class _ForkNode(Struct):
    """Relevant line, without its text. A prompt has `prompt`: its stripped head, and its length in bytes.

    `parent` is the index of the parent node. The CLI writes a `filler` before a prompt if the prompt before had no answer. `side`
    marks entries of a subagent. `leaf` is the entry that a line without a uuid points to.
    """

    start: int
    end: int
    kind: str
    uuid: str | None = None
    parent: int | None = None
    message_id: str | None = None
    prompt: tuple[str, int] | None = None
    compaction: bool = False
    filler: bool = False
    is_result: bool = False
    side: bool = False
    leaf: str | None = None


def _nodes_of(lines: Iterable[bytes]) -> list[_ForkNode]:
    """Return the lines that are whole JSON objects. A last line without a newline is incomplete. claude skips unreadable lines.

    Raises `UsageError(limit_exceeded)`.
    """
    nodes: list[_ForkNode] = []
    places: dict[str, int] = {}
    at, before = 0, None
    for line in lines:
        start, at = at, at + len(line)
        if not line.endswith(b"\n") or (entry := parse_entry(line)) is None:
            continue
        check_length(len(nodes))
        node = _node(entry, start, at)
        if node.uuid is not None:
            node.parent = _parent(entry, places, before)
            places[node.uuid] = len(nodes)
            before = before if node.side else len(nodes)
        nodes.append(node)
    return nodes


def _node(entry: Frame, start: int, end: int) -> _ForkNode:
    node = _ForkNode(start, end, get_str(entry, "type") or "")
    node.uuid, node.leaf = get_str(entry, "uuid"), get_str(entry, "leafUuid")
    node.side = entry.get("isSidechain") is True
    node.compaction = node.kind == "system" and entry.get("subtype") == "compact_boundary"
    message = entry.get("message")
    if node.uuid is None or not isinstance(message, dict):
        return node
    content = message.get("content")
    words = "\n".join(texts_of(content)).strip()
    if node.kind == "assistant":
        node.message_id = get_str(message, "id")
        node.filler = message.get("model") == "<synthetic>" and words == _NO_ANSWER
    elif node.kind == "user":
        node.is_result = _only_results(content)
        node.prompt = None if node.is_result else _prompt(entry, words)
    return node


def _prompt(entry: Frame, words: str) -> tuple[str, int] | None:
    own_word = entry.get("isMeta") is True or entry.get("isCompactSummary") is True
    if own_word or words.startswith((_INTERRUPTED, *_LOCAL)):
        return None
    return prompt_mark(words)


def _only_results(content: Any) -> bool:
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and all(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)


def _parent(entry: Mapping[str, Any], places: Mapping[str, int], before: int | None) -> int | None:
    """Return the index of the parent, always an earlier node. The node before stands in for a missing parent."""
    if "parentUuid" not in entry:
        return before
    named = entry["parentUuid"] if entry["parentUuid"] is not None else entry.get("logicalParentUuid")
    return None if named is None else places.get(str(named), before)


def _chain_of(nodes: Sequence[_ForkNode]) -> list[int]:
    """Return the indices of the conversation's entries, from the first to the newest."""
    at = next((i for i in reversed(range(len(nodes))) if nodes[i].uuid is not None and not nodes[i].side), None)
    chain: list[int] = []
    while at is not None:
        chain.append(at)
        at = nodes[at].parent
    return chain[::-1]


def _exchanges_of(nodes: Sequence[_ForkNode], chain: Sequence[int], turns: Sequence[TurnTrace]) -> list[Exchange]:
    """Return the parts of the conversation in order, each with its turn if there is one."""
    told = {message: at for at, turn in enumerate(turns) for message in turn.message_ids}
    parts: list[Exchange] = []
    for at, i in enumerate(chain):
        node = nodes[i]
        owner = told.get(node.message_id or "")
        begins = node.prompt is not None or node.compaction
        if begins or (parts and None not in (owner, parts[-1].owner) and owner != parts[-1].owner):
            parts.append(Exchange(at, at, place=node.start, prompt=None if node.compaction else node.prompt))
        if parts:
            parts[-1].end = at + 1
            parts[-1].owner = parts[-1].owner if owner is None else owner
    own_by_prompt(parts, turns)
    return parts


class ClaudeFork:
    """Rules of a fork, for claude and for backends with the same transcripts."""

    def plan(self, lines: Iterable[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool) -> ForkPlan:
        """Plan the lines of the fork: all lines, or those of the conversation up to the end of turn `upto`.

        `lines` have their newlines; memory holds only a few facts of each. With `whole`, `upto` is the last turn and only decides
        whether the copy is complete. Raises `UsageError(turn_not_found)` if the transcript has nothing of the turn.
        """
        nodes = _nodes_of(lines)
        chain = _chain_of(nodes)
        place = next((at for at, turn in enumerate(turns) if turn.turn_id == upto), None)
        complete = place is None or has_end_of(turns[place], [nodes[i].message_id for i in chain])
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


def _end_of(nodes: Sequence[_ForkNode], chain: Sequence[int], turns: Sequence[TurnTrace], place: int) -> int:
    """Return the length of the chain up to the end of this turn: its last exchange, or that of a turn before."""
    parts, turn = _exchanges_of(nodes, chain, turns), turns[place]
    has_ids = any(nodes[i].message_id for i in chain)
    if turn.message_ids and has_ids and all(part.owner != place for part in parts):
        raise UsageError(
            f"cannot fork at turn {turn.turn_id}, because the CLI's transcript does not hold it",
            kind="turn_not_found",
            hint="the session was rewound or cleared there, or the CLI was killed before it wrote; fork at another turn",
        )
    if (last := last_exchange(parts, place)) is None:
        return 0
    end = last.end
    while end > last.begin + 1 and _is_after(nodes[chain[end - 1]], turn):
        end -= 1
    return end


def _is_after(node: _ForkNode, turn: TurnTrace) -> bool:
    """Tell whether the CLI wrote this entry for the next prompt, although the entry stands before that prompt."""
    return node.filler or (turn.until is not None and node.start >= turn.until)


def _taken(nodes: Sequence[_ForkNode], chain: Sequence[int]) -> list[_ForkNode]:
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


def _spans(nodes: Iterable[_ForkNode]) -> tuple[tuple[int, int], ...]:
    return tuple((node.start, node.end) for node in nodes)

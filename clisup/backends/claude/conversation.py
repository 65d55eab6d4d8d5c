"""What a transcript of claude's is made of: its lines as nodes, the chain of the conversation, and whose each part of it is. Pure.

A transcript (2.1.329) is compact JSON lines. The conversation is a chain: each entry names its `parentUuid`, and the newest
entry is the leaf that a resume goes on from. Three things make it less than a list: results of parallel tools hang on their own
calls, and only the last of them is in the chain; a compaction begins a new chain, whose `logicalParentUuid` is the old
one's end; and whoever rewound the session left branches that no leaf leads to.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace

__all__ = ["Exchange", "Node", "chain_of", "exchanges_of", "nodes_of", "parse_entry"]

LINES_LIMIT = 2_000_000
_INTERRUPTED = "[Request interrupted by user"
_LOCAL = ("<local-command-", "<command-name>", "<command-message>")  # what the CLI notes of a command of its own
_NO_ANSWER = "No response requested."
_COMPACT = "/compact"
_SPACES_CUT = 64  # whitespace at a prompt's ends, which the CLI may have taken away
_COMPARED = 100
_LOOKS = 1000  # exchanges looked at for a turn that no message id tells of


class Node(Struct):
    """A line that matters, without its text. `prompt` is there where it is one: its stripped head, and its length in bytes.

    `parent` is the place of its parent among the nodes. `filler` is what the CLI writes in front of a prompt after one that had
    no answer. `side` is a subagent's, `leaf` the entry that a line without a uuid points to.
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


class Exchange(Struct):
    """A prompt, a compaction or what the CLI began by itself, and what follows it: `begin` and `end` are places in the chain.

    `owner` is the place of its turn among the turns; None for what no turn of ours had asked.
    """

    begin: int
    end: int
    owner: int | None = None


def parse_entry(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None where it is none. Half a surrogate pair is no reason to pass over a line."""
    try:
        entry = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        try:
            entry = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return entry if isinstance(entry, dict) else None


def nodes_of(lines: Iterable[bytes]) -> list[Node]:
    """The lines that are whole JSON objects. A last one without a newline is torn; claude passes over what it cannot read.

    Raises `UsageError(limit_exceeded)`.
    """
    nodes: list[Node] = []
    places: dict[str, int] = {}
    at, before = 0, None
    for line in lines:
        start, at = at, at + len(line)
        if not line.endswith(b"\n") or (entry := parse_entry(line)) is None:
            continue
        if len(nodes) >= LINES_LIMIT:
            raise UsageError(
                f"cannot fork, because the transcript has more than {LINES_LIMIT} lines", kind="limit_exceeded"
            )
        node = _node(entry, start, at)
        if node.uuid is not None:
            node.parent = _parent(entry, places, before)
            places[node.uuid] = len(nodes)
            before = before if node.side else len(nodes)
        nodes.append(node)
    return nodes


def _node(entry: Mapping[str, Any], start: int, end: int) -> Node:
    node = Node(start, end, _text(entry.get("type")) or "")
    node.uuid, node.leaf = _text(entry.get("uuid")), _text(entry.get("leafUuid"))
    node.side = entry.get("isSidechain") is True
    node.compaction = node.kind == "system" and entry.get("subtype") == "compact_boundary"
    message = entry.get("message")
    if node.uuid is None or not isinstance(message, dict):
        return node
    content = message.get("content")
    if node.kind == "assistant":
        node.message_id = _text(message.get("id"))
        node.filler = message.get("model") == "<synthetic>" and _words(content) == _NO_ANSWER
    elif node.kind == "user":
        node.is_result = _only_results(content)
        node.prompt = None if node.is_result else _prompt(entry, _words(content))
    return node


def _prompt(entry: Mapping[str, Any], words: str) -> tuple[str, int] | None:
    own_word = entry.get("isMeta") is True or entry.get("isCompactSummary") is True
    if own_word or words.startswith((_INTERRUPTED, *_LOCAL)):
        return None
    return words[:_COMPARED].strip(), len(words.encode("utf-8", "replace"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    blocks = content if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "\n".join(texts).strip()


def _only_results(content: Any) -> bool:
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and all(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)


def _parent(entry: Mapping[str, Any], places: Mapping[str, int], before: int | None) -> int | None:
    """The place of the parent, always an earlier one. Where it is not there, the entry before bridges the gap."""
    if "parentUuid" not in entry:
        return before
    named = entry["parentUuid"] if entry["parentUuid"] is not None else entry.get("logicalParentUuid")
    return None if named is None else places.get(str(named), before)


def chain_of(nodes: Sequence[Node]) -> list[int]:
    """The places of the conversation's entries, from the first to the newest."""
    at = next((i for i in reversed(range(len(nodes))) if nodes[i].uuid is not None and not nodes[i].side), None)
    chain: list[int] = []
    while at is not None:
        chain.append(at)
        at = nodes[at].parent
    return chain[::-1]


def exchanges_of(nodes: Sequence[Node], chain: Sequence[int], turns: Sequence[TurnTrace]) -> list[Exchange]:
    """The conversation in parts, in order, each with its turn as far as it has one. What stands before the first is nobody's.

    A message id decides. A turn that none was told of, or whose transcript has none, is known by its prompt, within what its
    run has written and between the exchanges of the turns around it.
    """
    told = {message: at for at, turn in enumerate(turns) for message in turn.message_ids}
    parts: list[Exchange] = []
    for at, i in enumerate(chain):
        owner = told.get(nodes[i].message_id or "")
        begins = nodes[i].prompt is not None or nodes[i].compaction
        if begins or (parts and None not in (owner, parts[-1].owner) and owner != parts[-1].owner):
            parts.append(Exchange(at, at))
        if parts:
            parts[-1].end = at + 1
            parts[-1].owner = parts[-1].owner if owner is None else owner
    _own_by_prompt(nodes, chain, parts, turns)
    return parts


def _own_by_prompt(
    nodes: Sequence[Node], chain: Sequence[int], parts: Sequence[Exchange], turns: Sequence[TurnTrace]
) -> None:
    free = [at for at, part in enumerate(parts) if part.owner is None]
    last_of = {part.owner: at for at, part in enumerate(parts) if part.owner is not None}
    roofs = _roofs(parts, len(turns))
    floor = -1
    for place, turn in enumerate(turns):
        if place not in last_of:
            looked = free[bisect_right(free, floor) :][:_LOOKS]
            fitting = (at for at in looked if at < roofs[place] and _asks(nodes[chain[parts[at].begin]], turn))
            if (found := next(fitting, None)) is not None:
                parts[found].owner, last_of[place] = place, found
        floor = max(floor, last_of.get(place, -1))


def _roofs(parts: Sequence[Exchange], turns: int) -> list[int]:
    """For each turn, the first exchange that is a later turn's."""
    first = [len(parts)] * (turns + 1)
    for at, part in reversed(list(enumerate(parts))):
        if part.owner is not None:
            first[part.owner] = at
    for place in reversed(range(turns)):
        first[place] = min(first[place], first[place + 1])
    return first[1:]


def _asks(node: Node, turn: TurnTrace) -> bool:
    """Is this the beginning of what the turn had asked?"""
    if (turn.at is not None and node.start < turn.at) or (turn.until is not None and node.start >= turn.until):
        return False
    preview = (turn.prompt_preview or "").strip()
    if node.compaction or node.prompt is None:
        return preview.startswith(_COMPACT)
    head, size = node.prompt
    if head and head == preview[:_COMPARED].strip():
        return True
    return turn.at is not None and turn.prompt_bytes is not None and 0 <= turn.prompt_bytes - size <= _SPACES_CUT

"""Rules for claude's transcripts: copies for forks, histories of callers, and evidence about a prompt. Pure.

Facts of 2.1.329. A transcript has JSON lines. A `user` entry holds the prompt as a string or as text blocks. An `assistant` entry
after it is the model's answer. A killed CLI leaves an incomplete last line, which claude ignores, too.

A copy keeps the uuids of the entries, as `--fork-session` does. It leaves out `api-request*` (for the CLI's own use), `cost-state`
(the cost of the copy begins at zero), `queue-operation` (the queue of an ended process) and pointers to entries that are not in
the copy.

A written history goes to the API unchanged. The CLI sends its own words about the machine with the first new prompt. A line needs
`type`, `uuid`, `parentUuid`, `timestamp` and `message.content`, as compact JSON. The CLI merges adjacent user messages. It leaves
out blank texts and the images of failed results, which an API refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from clisup.backends.base import ForkPlan
from clisup.backends.claude.conversation import Node, chain_of, exchanges_of, nodes_of, parse_entry
from clisup.backends.frames import Frame
from clisup.backends.transcripts import Seed, json_line, own_directory, texts_of
from clisup.errors import UsageError
from clisup.model.prompts.history import (
    HistoryBlock,
    HistoryImage,
    HistoryText,
    HistoryThinking,
    HistoryToolUse,
    is_blank,
    sendable,
)
from clisup.model.sessions.turn_trace import TurnTrace

__all__ = ["ClaudeFork", "ClaudeSeed", "config_directory", "project_folder", "read_message"]

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


def config_directory(env: Mapping[str, str]) -> str | None:
    """Return claude's own directory: `CLAUDE_CONFIG_DIR`, else `.claude` in HOME."""
    return own_directory(env, ".claude", "CLAUDE_CONFIG_DIR")


_FOLDER_LIMIT = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ClaudeSeed:
    """Rules of a history, for claude and for backends with the same transcripts.

    `home` returns the directory with the CLI's `projects`, or None if the environment does not tell. With `marks_caches`, the
    file keeps the caller's cache marks (`cache_control`). claude sets its own.
    """

    def __init__(
        self, home: Callable[[Mapping[str, str]], str | None] = config_directory, *, marks_caches: bool = False
    ) -> None:
        self.home = home
        self._marks_caches = marks_caches

    def path(self, native_session_id: str, cwd: str, env: Mapping[str, str]) -> str | None:
        """Return the CLI's own path for a session of this id that begins in `cwd`, a real path."""
        home = self.home(env)
        return f"{home}/projects/{project_folder(cwd)}/{native_session_id}.jsonl" if home is not None else None

    def lines(self, seed: Seed) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline. The same seed gives the same bytes."""
        parent: str | None = None
        for number, (role, said) in enumerate(sendable(seed.history)):
            content = said if isinstance(said, str) else [self._marked(block) for block in said]
            message: Frame = {"role": role, "content": content}
            if role == "assistant":
                message |= _of_the_model(content, seed.model)
            own = seed.entry_id(number)
            yield json_line({
                "parentUuid": parent,
                "isSidechain": False,
                "type": role,
                "message": message,
                "uuid": own,
                "timestamp": seed.at,
                "userType": "external",
                "cwd": seed.cwd,
                "sessionId": seed.native_session_id,
            })  # fmt: skip
            parent = own

    def _marked(self, block: HistoryBlock) -> Frame:
        marked = self._marks_caches and not isinstance(block, HistoryThinking) and block.cache
        return _block(block) | ({"cache_control": {"type": "ephemeral"}} if marked else {})


def _of_the_model(content: Any, model: str | None) -> Frame:
    """Return the model of an answer. claude sends thinking only to the model that is named here."""
    called = not isinstance(content, str) and any(block["type"] == "tool_use" for block in content)
    return {
        "type": "message",
        **({"model": model} if model is not None else {}),
        "stop_reason": "tool_use" if called else "end_turn",
    }


def _block(block: HistoryBlock) -> Frame:
    """Return a block in the form of the Messages API."""
    if isinstance(block, HistoryText):
        return {"type": "text", "text": block.text}
    if isinstance(block, HistoryThinking):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if isinstance(block, HistoryImage):
        return {"type": "image", "source": {"type": "base64", "media_type": block.media_type, "data": block.data}}
    if isinstance(block, HistoryToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    content = (
        block.content
        if isinstance(block.content, str)
        else [_block(part) for part in block.content if not is_blank(part)]
    )
    failed = {"is_error": True} if block.is_error else {}
    return {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content, **failed}


def project_folder(cwd: str) -> str:
    """Return the CLI's folder below `projects` for a directory. The CLI counts in UTF-16, as JavaScript does."""
    units = memoryview(cwd.encode("utf-16-le", "surrogatepass")).cast("H")
    name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(name) <= _FOLDER_LIMIT:
        return name
    total = 0
    for unit in units:
        total = (total * 31 + unit) & 0xFFFFFFFF
    return f"{name[:_FOLDER_LIMIT]}-{_base36(abs(total - (total >> 31 << 32)))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def read_message(entry: Frame) -> tuple[str, str]:
    """Return role and text of a transcript's entry."""
    return entry["type"], "\n".join(texts_of(entry["message"].get("content")))

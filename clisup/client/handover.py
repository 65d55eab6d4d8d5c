"""Handover: another backend goes on with the conversation of a session so far. For the blocking client."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clisup.client.options import given
from clisup.client.raw import JsonObject, stored
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError

__all__ = [
    "FORKS_LIMIT",
    "HISTORY_LIMIT",
    "TEXT_LIMIT",
    "HandedConversation",
    "HandedTurn",
    "HandoverDone",
    "hand_over",
]

HISTORY_LIMIT = 4 * 1024 * 1024
"""Limit of the characters of a history. The daemon takes a frame of 16 MiB."""

TEXT_LIMIT = 100_000
"""Limit of the characters of a conversation at the head of a prompt: about 25,000 tokens."""

FORKS_LIMIT = 100
"""Limit of sessions in one conversation, each forked from the one before."""

_TYPES = ["prompt_accepted", "turn_started", "turn_completed", "session_forked", "session_seeded"]
_CUT = "\n[...]"


@dataclass
class HandedTurn:
    """Prompts and answer of a turn that has ended."""

    id: str
    prompts: list[str]
    answer: str

    @property
    def size(self) -> int:
        """Number of characters."""
        return sum(map(len, self.prompts)) + len(self.answer)


@dataclass
class HandedConversation:
    """Turns of a session that have ended, and notes about what is missing."""

    turns: list[HandedTurn] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def shorten(self, limit: int) -> None:
        """Leave out the oldest turns until the rest has at most `limit` characters. The last turn stays, cut if need be."""
        kept, room = list[HandedTurn](), limit
        for turn in reversed(self.turns):
            if turn.size > room:
                break
            kept.insert(0, turn)
            room -= turn.size
        if not kept:
            last, share = self.turns[-1], limit // (len(self.turns[-1].prompts) + 1)
            kept = [HandedTurn(last.id, [_cut(text, share) for text in last.prompts], _cut(last.answer, share))]
            self.missing.append(f"turn {last.id} is cut to {limit:,} characters")
        if left := len(self.turns) - len(kept):
            self.missing.append(f"the oldest {'turn is' if left == 1 else f'{left} turns are'} left out, for the size")
        self.turns = kept

    def history(self) -> list[JsonObject]:
        """Return the conversation as `history` of session/new."""
        return [message for turn in self.turns for message in _messages(turn)]

    def text(self, backend: str, prompt: str) -> str:
        """Return a prompt with the conversation at its head."""
        parts = [f"Here is the conversation so far in this directory, with {backend}. Tool calls are left out."]
        for turn in self.turns:
            parts += [f"## User\n\n{text}" for text in turn.prompts]
            parts.append(f"## Assistant\n\n{turn.answer}")
        return "\n\n".join([*parts, f"## End of the conversation so far\n\n{prompt}"])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - len(_CUT))] + _CUT


def _messages(turn: HandedTurn) -> list[JsonObject]:
    asked = [{"role": "user", "content": text} for text in turn.prompts]
    return [*asked, {"role": "assistant", "content": turn.answer}]


class HandoverDone(NamedTuple):
    """Session that goes on. `takes_history`: the conversation is its history, else it is at the head of its first prompt."""

    session_id: str
    source: JsonObject
    turns: int
    takes_history: bool
    turn_id: str | None
    missing: list[str]


def hand_over(client: Client, session_id: str, backend: str, prompt: str | None, **settings: Any) -> HandoverDone:
    """Open a session of `backend` with the conversation of a session. With a prompt, it begins a turn at once.

    `settings` are the `model` and `permission_mode` of the new session. Raises `UsageError(usage)` for an unknown backend, for
    a conversation without an ended turn, and without a prompt for a backend that takes no history.
    """
    source = client.call("session/get", session_id=session_id)
    takes_history = _takes_history(client, backend)
    if not takes_history and prompt is None:
        raise _usage(
            f"cannot hand over to {backend} without a prompt, because it takes no history",
            hint=f'the conversation goes with the first prompt: clisup handover {session_id[:8]} -b {backend} "Go on."',
        )
    talk = _conversation(client, source)
    talk.shorten(HISTORY_LIMIT if takes_history else TEXT_LIMIT)
    new = _open(client, source, backend, talk.history() if takes_history else None, given(settings))
    turn = _begin(client, new, prompt if takes_history else talk.text(source["backend"], prompt or ""), prompt)
    return HandoverDone(new, source, len(talk.turns), takes_history, turn, talk.missing)


def _usage(message: str, hint: str) -> UsageError:
    return UsageError(message, kind="usage", hint=hint)


def _takes_history(client: Client, backend: str) -> bool:
    """Tell whether the backend has the capability `history`. Raises `UsageError(usage)` for an unknown name."""
    known = {about["name"]: about for about in client.call("backend/list")}
    if backend not in known:
        raise _usage(f"cannot hand over to {backend!r}, because there is no such backend", hint=", ".join(known))
    return bool(known[backend]["capabilities"].get("history"))


def _open(
    client: Client, source: JsonObject, backend: str, history: list[JsonObject] | None, settings: JsonObject
) -> str:
    tree = source.get("worktree")
    shared = {"session_id": source["session_id"]} if tree is not None and tree["state"] != "removed" else None
    params = {"title": source.get("title"), "labels": source["labels"] or None, "history": history, "worktree": shared}
    opened = client.call("session/new", backend=backend, cwd=source["cwd"], **settings, **given(params))
    return str(opened["session_id"])


def _begin(client: Client, session_id: str, text: str | None, prompt: str | None) -> str | None:
    """Send the first prompt, if there is one. A session whose prompt is refused is closed: nobody knows its id."""
    if prompt is None:
        return None
    try:
        return str(client.call("session/prompt", session_id=session_id, prompt=text, key="handover")["turn_id"])
    except ClisupError:
        with suppress(ClisupError):
            client.call("session/close", session_id=session_id)
        raise


# -- the conversation ---------------------------------------------------------------------------------------------------


class HandedPart(NamedTuple):
    """Events of a session in the conversation, and its last turn in it (None: all turns)."""

    session_id: str
    events: list[JsonObject]
    upto: str | None


def _conversation(client: Client, source: JsonObject) -> HandedConversation:
    """Read the ended turns of a session and of the sessions that it was forked from. Raises `UsageError(usage)` without any."""
    talk = HandedConversation()
    for part in _parts(client, source["session_id"], talk):
        _add_turns(client, part, talk)
    if not talk.turns:
        raise _usage(
            f"cannot hand over session {source['session_id'][:8]}, because no turn of it has ended",
            hint="open a session: clisup run",
        )
    return talk


def _parts(client: Client, session_id: str, talk: HandedConversation) -> list[HandedPart]:
    """Return the session and the sessions before its forks, the oldest first."""
    parts: list[HandedPart] = []
    wanted, upto = session_id, None
    while True:
        if len(parts) >= FORKS_LIMIT:
            talk.missing.append(f"what was said before session {wanted[:8]}, {FORKS_LIMIT} forks before")
            break
        try:
            events = list(stored(client, wanted, types=_TYPES))
        except ClisupError as error:
            if error.kind != "session_not_found" or not parts:
                raise
            talk.missing.append(f"what was said before the fork of session {wanted[:8]}, which was deleted")
            break
        of = "" if upto is None else f" of session {wanted[:8]}"
        for event in events:
            if event["type"] == "gap":
                talk.missing.append(f"events {event['from_seq']} to {event['to_seq']}{of}, which retention removed")
            elif event["type"] == "session_seeded":
                talk.missing.append(f"what was said before session {wanted[:8]} was opened: it began with a history")
        parts.insert(0, HandedPart(wanted, events, upto))
        fork = next((event for event in events if event["type"] == "session_forked"), None)
        if fork is None:
            break
        wanted, upto = fork["source_session_id"], fork.get("at_turn") or ""  # "": forked before its first turn
    return parts


def _add_turns(client: Client, part: HandedPart, talk: HandedConversation) -> None:
    """Add the ended turns of one session, up to its last one in the conversation."""
    id_, found, upto = part
    previews = {event["turn_id"]: event.get("prompt_preview") for event in found if event["type"] == "turn_started"}
    ends = [event for event in found if event["type"] == "turn_completed"]
    taken = {prompt: end["turn_id"] for end in ends for prompt in end.get("prompt_ids") or ()}
    prompts: dict[str, list[JsonObject]] = {}
    for event in found:
        if event["type"] == "prompt_accepted" and event["delivery"] != "duplicate":
            turn = str(taken.get(event.get("prompt_id"), event["turn_id"]))
            prompts.setdefault(turn, []).append(event)
    if upto is not None:
        ids = [end["turn_id"] for end in ends]
        ends = ends[: ids.index(upto) + 1] if upto in ids else []
    for end in ends:
        turn = end["turn_id"]
        asked = [_prompt(client, id_, event, previews, talk) for event in prompts.pop(turn, [])]
        said = _whole(client, id_, end, "text").strip()
        answer = said or f"(The turn ended without an answer: {end['outcome'].replace('_', ' ')}.)"
        talk.turns.append(HandedTurn(turn, asked or ["(The CLI began this turn by itself.)"], answer))
    if upto is None:
        talk.missing += [f"turn {turn}, which has not ended" for turn in prompts]


def _prompt(client: Client, id_: str, event: JsonObject, previews: dict[str, Any], talk: HandedConversation) -> str:
    """Return the text of a prompt: whole if the daemon has kept it, else its beginning."""
    turn = event["turn_id"]
    if event.get("images"):
        talk.missing.append(f"images of turn {turn}: {event['images']}")
    if event.get("text") is None:
        talk.missing.append(f"most of the prompt of turn {turn}, which was not kept (daemon.keep_prompts)")
        return str(previews.get(turn) or "(not kept)") + _CUT
    if not event.get("blob"):
        return str(event["text"]).strip() or "(images alone)"
    try:
        blocks = json.loads(client.blob(id_, event["blob"]))
        return "\n\n".join(block["text"] for block in blocks if block.get("type") == "text").strip() or "(images alone)"
    except (ClisupError, ValueError):
        talk.missing.append(f"the end of the prompt of turn {turn}, whose file is gone")
        return str(event["text"]) + _CUT


def _whole(client: Client, id_: str, event: JsonObject, name: str) -> str:
    if not event.get("blob"):
        return str(event.get(name) or "")
    return client.blob(id_, event["blob"]).decode("utf-8", "replace")

"""Stored events of a session for an editor: whole payloads, and a replay that ends where the live events begin."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from clisup.client.aio import AsyncClient
from clisup.client.aio_session import AsyncSession
from clisup.client.events import (
    AnyEvent,
    ApprovalRequested,
    AssistantMessage,
    Block,
    Envelope,
    Gap,
    PromptAccepted,
    SessionForked,
    ToolResult,
    ToolUse,
    TurnCompleted,
)
from clisup.client.raw import JsonObject
from clisup.doors.acp.calls import surely
from clisup.doors.acp.updates import UpdateMaker
from clisup.errors import ClisupError

__all__ = ["MAX_FORKS", "MAX_PAYLOAD", "replay", "with_payload"]

MAX_PAYLOAD = 4 * 1024 * 1024
"""Bytes of a payload that is read whole. Of a larger one the editor gets the head."""

MAX_PROMPT = 32 * 1024 * 1024
"""Bytes of a prompt with images that is read whole."""

MAX_FORKS = 20
"""Sessions in one conversation, each forked from the one before, that a replay shows."""

TYPES = [
    "approval_requested", "approval_resolved", "message", "notice", "prompt_accepted", "retracted", "session_init", "status",
    "tool_result", "tool_use", "turn_completed", "turn_started",
]  # fmt: skip
"""Events that make a replay. Pieces of messages are read for the unfinished message alone."""

SETTINGS = ["notice", "session_init"]
"""Events that tell a session's settings."""

Send = Callable[[Envelope, list[JsonObject]], Awaitable[None]]


async def replay(
    client: AsyncClient, session: AsyncSession, maker: UpdateMaker, upto: int, send: Send, *, first: int, forks: bool
) -> None:
    """Feed `maker` the events up to the seq `upto`, and give the updates to `send`.

    `first` is the seq of the first event that is kept. With `forks`, the events before a fork of the session come first.
    """
    if forks:
        await _replay_sources(client, session, UpdateMaker(maker.cwd), send)
    if first > 1:
        gap = Envelope(session.id, first - 1, "", None, "daemon", Gap(1, first - 1, "retention"))
        await send(gap, maker.take(gap))
    await _feed(client, session, maker, upto, send, types=TYPES, after=0)
    await _feed(client, session, maker, upto, send, types=["content_delta"], after=maker.last_message)


async def replay_settings(client: AsyncClient, session: AsyncSession, maker: UpdateMaker, upto: int) -> None:
    """Feed `maker` the events that tell the session's settings, for a session without a running turn."""

    async def drop(_envelope: Envelope, _updates: list[JsonObject]) -> None:
        return None

    await _feed(client, session, maker, upto, drop, types=SETTINGS, after=0)


async def _feed(
    client: AsyncClient,
    session: AsyncSession,
    maker: UpdateMaker,
    upto: int,
    send: Send,
    *,
    types: list[str],
    after: int,
) -> None:
    async for envelope in session.history(after, types=types):
        if envelope.seq > upto:
            return
        await send(envelope, maker.take(await with_payload(client, envelope)))


async def _replay_sources(client: AsyncClient, session: AsyncSession, maker: UpdateMaker, send: Send) -> None:
    """Feed `maker` the events before the fork of a session, of the oldest session first. Deleted sessions are left out."""
    for source in reversed(await _sources(client, session)):
        with suppress(ClisupError):
            async for envelope in client.attach(source.source_session_id).history(types=TYPES):
                whole = await with_payload(client, envelope)
                turn = f"{source.source_session_id[:8]}-{envelope.turn_id}"  # the fork counts its turns anew
                await send(envelope, maker.take(_moved(whole, whole.event, turn)))
                if isinstance(envelope.event, TurnCompleted) and envelope.turn_id == source.at_turn:
                    break


async def _sources(client: AsyncClient, session: AsyncSession) -> list[SessionForked]:
    """Return the forks that led to a session, the last one first."""
    found: list[SessionForked] = []
    wanted = session.id
    while len(found) < MAX_FORKS:
        try:
            first = [item.event async for item in client.attach(wanted).history(types=["session_forked"])]
        except ClisupError:
            break
        if not first or not isinstance(fork := first[0], SessionForked) or fork.at_turn is None:
            break
        found.append(fork)
        wanted = fork.source_session_id
    return found


async def with_payload(client: AsyncClient, envelope: Envelope) -> Envelope:
    """Return the event with its whole payload, if it has one of at most `MAX_PAYLOAD`.

    A prompt with a payload has the JSON of its blocks as `text`.
    """
    event, id_ = envelope.event, envelope.session_id
    whole: AnyEvent
    match event:
        case PromptAccepted(blob=str(blob)):
            data = await _payload(client, id_, blob, MAX_PROMPT)
            whole = replace(event, text=data) if data is not None else replace(event, blob=None)
        case ToolUse(blob=str(blob)) | ApprovalRequested(blob=str(blob)):
            given = _object(await _payload(client, id_, blob))
            whole = event if given is None else replace(event, input=given)
        case ToolResult(blob=str(blob)) if event.blocks is None:
            whole = replace(event, content=await _payload(client, id_, blob) or event.content)
        case TurnCompleted(blob=str(blob)):
            whole = replace(event, text=await _payload(client, id_, blob) or event.text)
        case AssistantMessage() if any(block.blob for block in event.blocks):
            whole = replace(event, blocks=tuple([await _whole_block(client, id_, block) for block in event.blocks]))
        case _:
            return envelope
    return _moved(envelope, whole, envelope.turn_id)


def _moved(envelope: Envelope, event: AnyEvent, turn_id: str | None) -> Envelope:
    return Envelope(envelope.session_id, envelope.seq, envelope.ts, turn_id, envelope.source, event)


async def _whole_block(client: AsyncClient, session_id: str, block: Block) -> Block:
    if block.blob is None or block.kind not in ("text", "thinking"):
        return block
    return replace(block, text=await _payload(client, session_id, block.blob) or block.text)


async def _payload(client: AsyncClient, session_id: str, blob: str, limit: int = MAX_PAYLOAD) -> str | None:
    """Return a payload as text, or None if it is too large or gone."""
    data = b""
    try:
        while True:
            page = await surely(client, "session/blob", session_id=session_id, blob=blob, offset=len(data))
            if page["size"] > limit:
                return None
            piece = b64decode(page["data_base64"])
            data += piece
            if page["eof"] or not piece:
                return data.decode("utf-8", "replace")
    except ClisupError:
        return None


def _object(text: str | None) -> JsonObject | None:
    try:
        value = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

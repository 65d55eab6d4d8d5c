"""Shapes of the frames that claude prints (2.1.197 to 2.1.329), with the fields that clisup reads.

Unknown fields cost nothing and break nothing. msgspec skips the large duplicates (`tool_use_result`, `usage` of an assistant
frame) without making Python objects. Frequent frames are typed structs. Rare frames stay dicts, read field by field by the
`get_*` functions, so that one odd field does not lose the frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from clisup.backends.frames import Count, Frame, MalformedError
from clisup.model.events import DeltaKind

__all__ = [
    "Assistant", "BlockDelta", "BlockStop", "ContentBlock", "HotFrame", "MessageDelta", "MessageStartEvent",
    "MessageStopEvent", "StreamEvent", "System", "UsageCounts", "User", "as_blocks", "decode_hot", "raw_delta_text",
]  # fmt: skip


class UsageCounts(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class TextBlockDelta(Struct, tag="text_delta", gc=False):
    text: str
    kind: ClassVar[DeltaKind] = "text"


class ThinkingBlockDelta(Struct, tag="thinking_delta", gc=False):
    text: str = msgspec.field(name="thinking")
    kind: ClassVar[DeltaKind] = "thinking"


class InputDelta(Struct, tag="input_json_delta", gc=False):
    text: str = msgspec.field(name="partial_json")
    kind: ClassVar[DeltaKind] = "tool_input"


class SignatureDelta(Struct, tag="signature_delta", gc=False):
    """Proof of the thinking for the API. No event holds it."""

    text: ClassVar[None] = None


class CitationsDelta(Struct, tag="citations_delta", gc=False):
    """Sources of a text. The text itself comes in its own deltas."""

    text: ClassVar[None] = None


class MessageHead(Struct):
    id: str | None = None
    model: str | None = None
    usage: UsageCounts | None = None


class MessageStartEvent(Struct, tag="message_start"):
    message: MessageHead


class BlockStart(Struct, tag="content_block_start", gc=False):
    index: Count


class BlockDelta(Struct, tag="content_block_delta", gc=False):
    index: Count
    delta: TextBlockDelta | ThinkingBlockDelta | InputDelta | SignatureDelta | CitationsDelta


class BlockStop(Struct, tag="content_block_stop", gc=False):
    index: Count


class StopDelta(Struct):
    stop_reason: str | None = None


class MessageDelta(Struct, tag="message_delta"):
    delta: StopDelta
    usage: UsageCounts | None = None


class MessageStopEvent(Struct, tag="message_stop"):
    pass


class Ping(Struct, tag="ping"):
    pass


class AbandonedBlocks(Struct):
    """Part of a `message_stop` that the CLI made up: blocks from this index on never get an assistant frame."""

    api_message_id: str | None = None
    from_block_index: Count = 0


class StreamEvent(Struct, tag="stream_event", gc=False):
    event: MessageStartEvent | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStopEvent | Ping
    parent_tool_use_id: str | None = None
    abandoned_blocks: AbandonedBlocks | None = None


class ContentBlock(Struct):
    """Block of any type: of an assistant's or user's message, or an item of a tool result."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: Frame | None = None
    source: Frame | str | None = None  # of an image: media_type, data
    tool_use_id: str | None = None
    content: str | list[Any] | Frame | None = None
    is_error: bool | None = None


class AssistantBody(Struct):
    content: list[ContentBlock] | str
    id: str | None = None
    model: str | None = None


class Assistant(Struct, tag="assistant"):
    message: AssistantBody
    parent_tool_use_id: str | None = None
    error: str | None = None
    is_api_error_message: bool | None = None
    api_error: str | None = None
    api_error_type: str | None = None
    api_error_status: Count | None = None


class UserBody(Struct):
    content: list[ContentBlock] | str


class User(Struct, tag="user"):
    message: UserBody
    parent_tool_use_id: str | None = None
    synthetic: bool | None = msgspec.field(default=None, name="isSynthetic")
    replay: bool | None = msgspec.field(default=None, name="isReplay")


class System(Struct, tag="system"):
    """Part of a system frame, enough to find frames without events (`thinking_tokens` precedes each thinking delta)."""

    subtype: str


HotFrame = StreamEvent | Assistant | User | System

_HOT = msgspec.json.Decoder(HotFrame)
_BLOCKS = list[ContentBlock]


decode_hot: Callable[[bytes], HotFrame] = _HOT.decode
"""Read a frequent frame. Raises ValueError or RecursionError for any other line."""


def as_blocks(items: list[Any]) -> list[ContentBlock]:
    """Return the items of a tool result. Raises MalformedError for items that are no blocks."""
    try:
        return msgspec.convert(items, _BLOCKS)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from None


def raw_delta_text(data: bytes) -> str | None:
    """Return the text of a delta with its lone surrogate halves, which `mend` loses. Return None for any other line."""
    try:
        delta = json.loads(data.decode("utf-8", "replace"))["event"]["delta"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    values = [delta.get(name) for name in ("text", "thinking", "partial_json")]
    return next((value for value in values if isinstance(value, str)), None)

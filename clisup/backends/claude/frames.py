"""Shapes of the frames that claude prints (2.1.197 to 2.1.329), as far as clisup reads them.

Only the fields that become part of an event are named, so unknown fields cost nothing and break nothing, and the large
duplicates (`tool_use_result`, `usage` of an assistant frame) are skipped without making Python objects.
The frequent frames are typed structs; the rare ones stay dicts, read field by field with the `get_*` functions, so that
one odd field does not lose the frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from clisup.backends.frames import LARGEST, MalformedError
from clisup.model.events import DeltaKind

__all__ = [
    "Assistant",
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "ContentBlock",
    "HotFrame",
    "InputDelta",
    "MessageDelta",
    "MessageStartEvent",
    "MessageStopEvent",
    "Ping",
    "StreamEvent",
    "System",
    "TextDelta",
    "ThinkingDelta",
    "UsageCounts",
    "User",
    "as_blocks",
    "decode_any",
    "decode_hot",
    "join_halves",
    "mend",
    "raw_delta_text",
]

Count = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]


class UsageCounts(Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None


class TextDelta(Struct, tag="text_delta", gc=False):
    text: str
    kind: ClassVar[DeltaKind] = "text"


class ThinkingDelta(Struct, tag="thinking_delta", gc=False):
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
    delta: TextDelta | ThinkingDelta | InputDelta | SignatureDelta | CitationsDelta


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
    """On a `message_stop` that the CLI made up: blocks from this index on have no assistant frame and never will."""

    api_message_id: str | None = None
    from_block_index: Count = 0


class StreamEvent(Struct, tag="stream_event", gc=False):
    event: MessageStartEvent | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStopEvent | Ping
    parent_tool_use_id: str | None = None
    abandoned_blocks: AbandonedBlocks | None = None


class ContentBlock(Struct):
    """A block of any type: an assistant's or user's, or an item of a tool result."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    source: dict[str, Any] | str | None = None  # of an image: media_type, data
    tool_use_id: str | None = None
    content: str | list[Any] | dict[str, Any] | None = None
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
    """Only enough to tell a frame that gives no event (`thinking_tokens` comes before every thinking delta)."""

    subtype: str


HotFrame = StreamEvent | Assistant | User | System

_HOT = msgspec.json.Decoder(HotFrame)
_ANY = msgspec.json.Decoder()
_BLOCKS = list[ContentBlock]


decode_hot: Callable[[bytes], HotFrame] = _HOT.decode
"""Read one of the frequent frames. Raises ValueError or RecursionError for every other line."""


def decode_any(data: bytes) -> object:
    """Read any JSON. Raises ValueError or RecursionError where it is none."""
    value: object = _ANY.decode(data)
    return value


def as_blocks(items: list[Any]) -> list[ContentBlock]:
    """The items of a tool result. Raises MalformedError where they are no blocks."""
    try:
        return msgspec.convert(items, _BLOCKS)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from None


_MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# A lone half of a surrogate pair, seen by eating every other escape before it (`\\ud83d` is no escape of a half).
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def mend(data: bytes) -> bytes:
    """The same line as valid UTF-8 with whole characters: what is no character becomes U+FFFD.

    claude writes halves of surrogate pairs where the model's text was cut between two deltas, and strict parsers refuse
    the whole line for it.
    """
    valid = data if data.isascii() else data.decode("utf-8", "replace").encode()
    if not _MAYBE_HALF.search(valid):  # the pass below calls back for every escape of the line
        return valid
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], valid)


def raw_delta_text(data: bytes) -> str | None:
    """The text of a delta with its lone surrogate halves, which `mend` cannot keep; None where the line is no such
    delta.
    """
    try:
        delta = json.loads(data.decode("utf-8", "replace"))["event"]["delta"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    values = [delta.get(name) for name in ("text", "thinking", "partial_json")]
    return next((value for value in values if isinstance(value, str)), None)


def join_halves(text: str) -> tuple[str, str]:
    """Put surrogate halves together: the text in whole characters, and the high half at its end that waits for its
    other half.
    """
    held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
    body = text[: len(text) - len(held)]
    return body.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), held

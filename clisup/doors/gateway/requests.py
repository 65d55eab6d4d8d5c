"""Request for an answer in no dialect's own form, and the parts that all dialects read alike. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from clisup.client.raw import JsonObject
from clisup.doors.gateway.failures import refused
from clisup.errors import ClisupError
from clisup.llm.histories import valid_history
from clisup.llm.messages import ImageBlock, Message, ToolResultBlock
from clisup.llm.tools import ToolDefinition

__all__ = [
    "MAX_MESSAGES", "AnswerRequest", "ToolChoice", "check_text", "conversation", "data_image", "decode", "format_schema",
    "given_names", "image", "object_schema", "prompted", "results_only", "sampling_of", "short_name", "tool_choice",
    "tool_definition", "tool_input", "unknown_names",
]  # fmt: skip

MAX_MESSAGES = 20_000
"""Messages of one request at most, as of a session's history."""

_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,", re.IGNORECASE)
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_RAW: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
_MOST_NAMES = 32
_NAME_CHARS, _SHORT_CHARS = 128, 64
_ABOUT = frozenset({"metadata", "user", "service_tier", "store", "safety_identifier", "prompt_cache_key", "betas"})
"""Parameters about a request. They change no answer, so that no header names them."""
_PLACE = re.compile(r" - at `(.*)`$")
_Body = TypeVar("_Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Request for an answer. `messages` are the whole conversation, and end with one of the user.

    `previous` is the id of the answer to continue, `keep` asks for a session that lives on, and `ignored` names parameters
    without effect.
    """

    model: str
    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolDefinition, ...] = ()
    sampling: JsonObject = field(default_factory=dict)
    schema: JsonObject | None = None
    stream: bool = False
    tell_usage: bool = True
    keep: bool = False
    previous: str | None = None
    ignored: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the program's tools by the shorter ones that the backend gets."""


def decode(type_: type[_Body], body: bytes) -> _Body:
    """Decode a body strictly. Raises `GatewayError` with the place of the mistake, and without its value."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        words, place = re.sub(r"'[^']{80,}'", "a long text", str(error)), _PLACE.search(str(error))
        param = place[1].removeprefix("$.").removeprefix("$") if place else None
        raise refused(f"the body is wrong: {words}", param or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused(f"the body is no JSON: {error}", kind="parse_error") from None
    except RecursionError:
        raise refused("the body is no JSON that is read here: it is nested too deeply", kind="parse_error") from None


def check_text(text: str) -> str:
    """Return the text. Raises `GatewayError` for half of a surrogate pair, which no daemon takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refused("a text holds half of a surrogate pair") from None
    return text


def conversation(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the conversation in the form of a history and a prompt. Raises `GatewayError` if the user does not end it."""
    found = list(messages)
    if len(found) > MAX_MESSAGES:
        raise refused(f"the request has more than {MAX_MESSAGES} messages", "messages")
    if not found:
        raise refused("there is no message", "messages")
    if found[-1].role != "user":
        raise refused("the last message is the model's: no backend continues one", "messages")
    valid = valid_history(found)
    if not valid or valid[-1].role != "user":
        raise refused("the last message of the user is empty, or has results of no call before it", "messages")
    return valid


def prompted(messages: Iterable[Message], system: str | None) -> tuple[tuple[Message, ...], str | None]:
    """Return the conversation and the system prompt. A system prompt alone is the prompt: title generators and others send it so.

    Raises `GatewayError` as `conversation`.
    """
    found = list(messages)
    if not found and system:
        return conversation([Message.user(system)]), None
    return conversation(found), system


def results_only(message: Message) -> bool:
    """Tell whether a message brings results of tools, and nothing else."""
    return bool(message.content) and all(isinstance(block, ToolResultBlock) for block in message.content)


def data_image(url: str, param: str) -> ImageBlock:
    """Return the image of a `data:` URL. Raises `GatewayError` for another URL: the gateway loads nothing from elsewhere."""
    found = _DATA_URL.match(url)
    if found is None:
        raise refused("an image comes as a data: URL with base64: the gateway loads no addresses", param)
    return image(found[1].lower().replace("image/jpg", "image/jpeg"), url[found.end() :], param)


def image(media_type: str, data: str, param: str) -> ImageBlock:
    """Return an image. Raises `GatewayError` for a type that no backend takes."""
    if media_type not in _IMAGES:
        raise refused(f"an image is one of {', '.join(_IMAGES)}", param)
    kind = cast("Literal['image/png', 'image/jpeg', 'image/gif', 'image/webp']", media_type)
    return ImageBlock(media_type=kind, data=check_text(data))


def tool_definition(
    name: str, description: str | None, schema: Mapping[str, Any] | None, wait_s: float
) -> ToolDefinition:
    """Return the definition of a tool that the program runs. Raises `GatewayError`."""
    try:
        given = dict(schema) if schema else {"type": "object", "properties": {}}
        return ToolDefinition(name, check_text(description or ""), {"type": "object", **given}, timeout_s=wait_s)
    except ClisupError as error:
        raise refused(error.message, "tools") from None


def short_name(name: str) -> str:
    """Return the name by which a backend gets a tool: Anthropic's API takes 128 characters, and others 64."""
    if not _SHORT_CHARS < len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    return f"{name[: _SHORT_CHARS - 17]}_{digest[:16]}"


def tool_input(text: str, param: str) -> JsonObject:
    """Return the arguments of a call, which come as JSON in a text. Raises `GatewayError`."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise refused("the arguments of a call are no JSON object", param)
    return found


def object_schema(schema: Any, param: str) -> JsonObject:
    """Return a JSON Schema for an answer. Raises `GatewayError` for another root than an object."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise refused('the schema of an answer has the root {"type": "object"}', param)
    return schema


def format_schema(kind: str, schema: JsonObject | None, param: str) -> JsonObject | None:
    """Return the schema of an OpenAI format (text, json_object, json_schema), or None for text. Raises as `object_schema`."""
    if kind == "text":
        return None
    return {"type": "object"} if kind == "json_object" else object_schema(schema, param)


class ToolChoice(NamedTuple):
    """Rules of a request about calls: whether the model may call tools, and the params that force it."""

    allowed: bool
    params: JsonObject


def tool_choice(choice: object, parallel: bool | None, *, has_tools: bool) -> ToolChoice:
    """Read the choice of a tool in the form of any dialect. Raises `GatewayError` for a choice that none has, or without tools.

    The forms are `auto`, `none`, `required` and `any`, alone or as `type`, and a tool by its name.
    """
    params: JsonObject = {} if parallel is None or not has_tools else {"parallel_tool_calls": parallel}
    given = choice if isinstance(choice, dict) else {"type": choice}
    kind, function = given.get("type"), given.get("function")
    name = given.get("name") or (function.get("name") if isinstance(function, dict) else None)
    if kind in (None, "auto", "none"):
        return ToolChoice(kind != "none", params)
    if not has_tools:
        raise refused("tool_choice forces a call, and there are no tools", "tool_choice")
    if kind in ("required", "any"):
        return ToolChoice(True, {"tool_choice": "any", **params})
    if kind in ("function", "tool") and isinstance(name, str) and 0 < len(name) <= _NAME_CHARS:
        return ToolChoice(True, {"tool_choice": f"tool:{check_text(name)}", **params})
    raise refused(
        'tool_choice is "auto", "none", "required", or a function by its name', "tool_choice", kind="unsupported"
    )


def given_names(asked: msgspec.Struct, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that a request has given."""
    return tuple(name for name in names if getattr(asked, name) is not None)


def unknown_names(body: bytes, type_: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of parameters that the gateway does not know: those of vLLM, llama.cpp and others.

    Raises `GatewayError` for a name that is no text: `decode` passes over such a name.
    """
    known = set(type_.__struct_fields__) | _ABOUT
    try:
        found = _RAW.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused(f"the body is no JSON: {error}", kind="parse_error") from None
    given = [name for name, value in found.items() if value != _NULL and name not in known]
    return tuple(name for name in given if _NAME.fullmatch(name))[:_MOST_NAMES]


def sampling_of(**params: Any) -> JsonObject:
    """Return the given params. Raises `GatewayError` for a value that no API takes."""
    from clisup.llm.chat import Sampling

    try:
        return Sampling(**{name: value for name, value in params.items() if value is not None}).to_wire()
    except (ClisupError, ValueError) as error:
        words = error.message if isinstance(error, ClisupError) else "a value is out of range"
        raise refused(words) from None

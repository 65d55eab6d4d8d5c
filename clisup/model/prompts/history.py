"""History before a session began, as a client sends it: messages of blocks, in the field names of
`clisup.llm.messages`.

A history must be valid for a model's API: the next message holds the result of each tool call. So the model gets what
the client wrote, and no CLI has to leave out a part of it by rules of its own.
"""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from clisup.model.prompts.content import MediaType, image_of
from clisup.model.structs import JsonObject

MAX_MESSAGES = 20_000


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class HistoryText(_Part):
    """Plain text. Blank text is left out, because an API takes none.

    `cache` marks the end of a part that an API backend asks its API to cache. A CLI sets its own marks.
    """

    type: Literal["text"]
    text: str
    cache: bool = False


class HistoryThinking(_Part):
    """Thinking of the model. It is left out without its maker's `signature`, because no API takes it then."""

    type: Literal["thinking"]
    text: str
    signature: str | None = None


class HistoryImage(_Part):
    """Image; `data` is base64."""

    type: Literal["image"]
    media_type: MediaType
    data: Annotated[str, Field(repr=False)]
    cache: bool = False

    @model_validator(mode="after")
    def _is_an_image(self) -> "HistoryImage":
        image_of(self.media_type, self.data)
        return self

    @property
    def size(self) -> int:
        """Return the size of the file in bytes, from the length of its base64."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")


class HistoryToolUse(_Part):
    """Tool call of the model."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=256)]
    input: JsonObject
    cache: bool = False


_ResultBlock = Annotated[HistoryText | HistoryImage, Field(discriminator="type")]


def text_or_blocks(said: Any) -> str:
    return "blocks" if isinstance(said, list) else "text"


class HistoryToolResult(_Part):
    """Answer of a tool."""

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1, max_length=256)]
    content: Annotated[
        Annotated[str, Tag("text")] | Annotated[list[_ResultBlock], Tag("blocks")], Discriminator(text_or_blocks)
    ]
    is_error: bool = False
    cache: bool = False


HistoryBlock = Annotated[
    HistoryText | HistoryThinking | HistoryImage | HistoryToolUse | HistoryToolResult, Field(discriminator="type")
]


class HistoryMessage(_Part):
    """Message: a text, or blocks in their order."""

    role: Literal["user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("text")] | Annotated[list[HistoryBlock], Tag("blocks")], Discriminator(text_or_blocks)
    ]

    @property
    def images(self) -> Iterator[HistoryImage]:
        """Yield the images of the message, also those in results of tools."""
        for block in blocks_of(self):
            inner = block.content if isinstance(block, HistoryToolResult) else [block]
            yield from (part for part in inner if isinstance(part, HistoryImage))


def blocks_of(message: HistoryMessage) -> Sequence[HistoryBlock]:
    """Return the blocks of a message. A text is one block."""
    return [HistoryText(type="text", text=message.content)] if isinstance(message.content, str) else message.content


def check_history(history: list[HistoryMessage]) -> list[HistoryMessage]:
    """Return the history unchanged.

    Raises `ValueError` with the number of the message if no model's API would take it.
    """
    if not history:
        return history
    if history[0].role != "user" or history[-1].role != "assistant":
        raise ValueError(
            "a history begins with a message of role user and ends with one of role assistant, or is empty"
        )
    if _is_void(history[0]) or _is_void(history[-1]):
        raise ValueError("the first or last message holds nothing to send: no more than blank text, or thinking")
    asked: dict[str, None] = {}
    known: set[str] = set()
    for number, message in enumerate(history):
        blocks = blocks_of(message)
        answered = [block.tool_use_id for block in blocks if isinstance(block, HistoryToolResult)]
        _check_roles(number, message.role, blocks)
        if message.role == "user" or asked:
            _check_answers(number, asked, answered)
        asked = dict.fromkeys(block.id for block in blocks if isinstance(block, HistoryToolUse))
        if twice := known & asked.keys():
            raise ValueError(f"message {number} has the tool_use id {min(twice)!r} of an earlier message")
        known |= asked.keys()
    return history


def open_calls(history: Sequence[HistoryMessage]) -> list[str]:
    """Return the ids of the last message's calls: the next prompt has to bring their results."""
    blocks = blocks_of(history[-1]) if history else ()
    return [block.id for block in blocks if isinstance(block, HistoryToolUse)]


def sendable(history: Sequence[HistoryMessage]) -> Iterator[tuple[str, str | Sequence[HistoryBlock]]]:
    """Yield roles and contents without the parts that no API takes again.

    Left out are blank texts, thinking without its signature, and messages that hold nothing else.
    """
    for message in history:
        if not _is_void(message):
            kept = (
                message.content if isinstance(message.content, str) else [b for b in message.content if not is_blank(b)]
            )
            yield message.role, kept


def is_blank(block: HistoryBlock) -> bool:
    """Tell whether the block cannot be sent again."""
    if isinstance(block, HistoryText):
        return not block.text.strip()
    return isinstance(block, HistoryThinking) and not block.signature


def _is_void(message: HistoryMessage) -> bool:
    """Tell whether a message holds nothing to send.

    Thinking alone is no message: a CLI that drops thinking has nothing left.
    """
    return all(is_blank(block) or isinstance(block, HistoryThinking) for block in blocks_of(message))


_OF_ROLE: dict[str, tuple[type[_Part], ...]] = {
    "user": (HistoryText, HistoryImage, HistoryToolResult),
    "assistant": (HistoryText, HistoryThinking, HistoryToolUse),
}


def _check_roles(number: int, role: str, blocks: Sequence[HistoryBlock]) -> None:
    wrong = next((block for block in blocks if not isinstance(block, _OF_ROLE[role])), None)
    if wrong is not None:
        raise ValueError(f"message {number} is the {role}'s and cannot hold a block of type {wrong.type}")


def _check_answers(number: int, asked: dict[str, None], answered: list[str]) -> None:
    """Raise unless this message answers each call of the message before it once, and nothing else."""
    given: set[str] = set()  # a message may hold a hundred thousand, and all clients wait during this check
    loose: list[str] = []
    for id_ in answered:
        (given.add if id_ in asked and id_ not in given else loose.append)(id_)
    if missing := [id_ for id_ in asked if id_ not in given]:
        raise ValueError(
            f"message {number} has no tool_result for the tool_use {missing[0]!r} of the message before it"
        )
    if loose:
        raise ValueError(
            f"message {number} has a tool_result for {loose[0]!r}, which the message before it does not ask for"
        )


History = Annotated[list[HistoryMessage], Field(max_length=MAX_MESSAGES), AfterValidator(check_history)]

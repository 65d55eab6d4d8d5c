"""Messages of typed blocks, to a model and from a model, in no CLI's own format.

A `Message` is frozen. `cache=True` on a block marks the end of a part that stays the same from call to call. An API with cache
markers gets one there (`to_wire_messages("anthropic")`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from clisup.client.raw import JsonObject
from clisup.llm.failures import InvalidRequest

Role = Literal["user", "assistant"]


class FrozenModel(BaseModel):
    """Base of values that never change."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBlock(FrozenModel):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str
    cache: bool = False


class ThinkingBlock(FrozenModel):
    """The model's thinking, as far as it is known. `signature` is its maker's proof, valid for the same model only."""

    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None


class ImageBlock(FrozenModel):
    """An image; `data` is base64. `media_type` is one of image/png, image/jpeg, image/gif, image/webp."""

    type: Literal["image"] = "image"
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    data: str = Field(repr=False)
    cache: bool = False

    @classmethod
    def of(cls, image: bytes, media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]) -> Self:
        """Return the block of a file's bytes."""
        return cls(media_type=media_type, data=base64.b64encode(image).decode())


class ToolUseBlock(FrozenModel):
    """Tool call of the model."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: JsonObject
    cache: bool = False


class ToolResultBlock(FrozenModel):
    """Result of a tool call, in a message of the user."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str | tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False
    cache: bool = False

    @property
    def text(self) -> str:
        """The text without images."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ImageBlock, Field(discriminator="type")]


class Message(FrozenModel):
    """One message of a conversation. System prompts are separate from messages."""

    role: Role
    content: tuple[Block, ...]

    @classmethod
    def user(cls, content: str | Sequence[TextBlock | ToolResultBlock | ImageBlock]) -> Self:
        """Return a message of the user, from a text or blocks."""
        return cls(role="user", content=(TextBlock(text=content),) if isinstance(content, str) else tuple(content))

    @classmethod
    def assistant(cls, content: str | Sequence[TextBlock | ThinkingBlock | ToolUseBlock]) -> Self:
        """Return a message of the model, from a text or blocks."""
        return cls(role="assistant", content=(TextBlock(text=content),) if isinstance(content, str) else tuple(content))

    @property
    def text(self) -> str:
        """The joined texts, without thinking, tools and images."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


Prompt = str | Message | Sequence[TextBlock | ImageBlock]
"""Beginning of a turn: a text, a message of the user, or blocks of text and images."""


def as_messages(prompt: Prompt | Iterable[Message]) -> tuple[Message, ...]:
    """Return a prompt or a whole conversation as messages.

    Raises `InvalidRequest` for other values, and if the last message is not the user's.
    """
    if isinstance(prompt, str):
        return (Message.user(prompt),)
    if isinstance(prompt, Message):
        parts: list[Any] = [prompt]
    else:
        parts = (
            list(prompt) if isinstance(prompt, Iterable) and not isinstance(prompt, Mapping | BaseModel) else [prompt]
        )
    blocks = tuple(part for part in parts if isinstance(part, TextBlock | ImageBlock | ToolResultBlock))
    if blocks and len(blocks) == len(parts):
        return (Message.user(blocks),)
    messages = tuple(part for part in parts if isinstance(part, Message))
    if len(messages) < len(parts):
        wrong = next(part for part in parts if not isinstance(part, Message))
        raise _no_prompt(
            f"a value of type {type(wrong).__name__} is not a message",
            "give a text, blocks, or messages: Message.user(...)",
        )
    if not messages or messages[-1].role != "user":
        raise _no_prompt(
            "the last message is not the user's" if messages else "it is empty", "add a message of the user"
        )
    return messages


def _no_prompt(why: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"not a prompt: {why}", hint=hint)


def one_message(prompt: Prompt, problem: str, hint: str) -> Message:
    """Return the prompt as one message. Raises `InvalidRequest` with this problem and hint for several messages."""
    messages = as_messages(prompt)
    if len(messages) > 1:
        raise InvalidRequest(problem, hint=hint)
    return messages[0]

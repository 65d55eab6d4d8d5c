"""What is said to a model and by it: messages of typed blocks, in no CLI's own format.

A `Message` is frozen. `cache=True` on a block marks the end of a part that stays as it is from call to call: where an API has
markers for that (`to_wire_messages("anthropic")`), one is set there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from clisup.llm.failures import InvalidRequest

__all__ = [
    "Block",
    "ImageBlock",
    "Message",
    "Prompt",
    "Role",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "as_messages",
]

Role = Literal["user", "assistant"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextBlock(_Frozen):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str
    cache: bool = False


class ThinkingBlock(_Frozen):
    """What the model thought, as far as it is told. `signature` is its maker's proof, only good for the same model."""

    type: Literal["thinking"] = "thinking"
    text: str
    signature: str | None = None


class ImageBlock(_Frozen):
    """An image; `data` is base64. `media_type` is one of image/png, image/jpeg, image/gif, image/webp."""

    type: Literal["image"] = "image"
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
    data: str = Field(repr=False)
    cache: bool = False

    @classmethod
    def of(cls, image: bytes, media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp"]) -> Self:
        """The block of a file's bytes."""
        return cls(media_type=media_type, data=base64.b64encode(image).decode())


class ToolUseBlock(_Frozen):
    """The model calls a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    cache: bool = False


class ToolResultBlock(_Frozen):
    """What a tool answered. In a message of the user."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str | tuple[TextBlock | ImageBlock, ...]
    is_error: bool = False
    cache: bool = False

    @property
    def text(self) -> str:
        """The text of it; images are left out."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ImageBlock, Field(discriminator="type")]


class Message(_Frozen):
    """One message of a conversation. A system prompt is no message: it is given beside them."""

    role: Role
    content: tuple[Block, ...]

    @classmethod
    def user(cls, content: str | Sequence[TextBlock | ToolResultBlock | ImageBlock]) -> Self:
        """The user's, of a text or of blocks."""
        return cls(role="user", content=(TextBlock(text=content),) if isinstance(content, str) else tuple(content))

    @classmethod
    def assistant(cls, content: str | Sequence[TextBlock | ThinkingBlock | ToolUseBlock]) -> Self:
        """The model's, of a text or of blocks."""
        return cls(role="assistant", content=(TextBlock(text=content),) if isinstance(content, str) else tuple(content))

    @property
    def text(self) -> str:
        """Its texts as one; thinking, tools and images are left out."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The calls of tools in it, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


Prompt = str | Message | Sequence[TextBlock | ImageBlock]
"""What a turn begins with: a text, a message of the user, or blocks of text and images."""


def as_messages(prompt: Prompt | Iterable[Message]) -> tuple[Message, ...]:
    """A prompt or a whole conversation as messages. Raises `InvalidRequest` for what is neither, and where the last message is not the
    user's.
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
            f"a value of type {type(wrong).__name__} is no message",
            "give a text, blocks, or messages: Message.user(...)",
        )
    if not messages or messages[-1].role != "user":
        raise _no_prompt("its last message is not the user's" if messages else "nothing is in it", "add one")
    return messages


def _no_prompt(why: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"cannot prompt with this, because {why}", kind="invalid_request", hint=hint)

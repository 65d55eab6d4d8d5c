"""Prompts that a scripted model was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from clisup.llm.chat import ChatOptions
from clisup.llm.messages import Message

__all__ = ["Asked"]


@dataclass(slots=True)
class Asked:
    """One prompt as the model got it. `messages` is the whole conversation: history, earlier turns, and this prompt at its end."""

    prompt: Message
    messages: tuple[Message, ...]
    options: ChatOptions
    output_schema: Mapping[str, Any] | None = None
    outcome: Literal["running", "finished", "failed", "left"] = "running"
    """`left`: the stream was left, or cancelled, before its end."""

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self.options.system

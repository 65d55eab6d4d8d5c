"""Conversation of a session as Markdown, for the resource `clisup://session/ID`. Pure."""

from __future__ import annotations

from clisup.client.events import AssistantMessage, Envelope, Gap, PromptAccepted, ToolUse, TurnCompleted
from clisup.doors.tool_calls import title_of

__all__ = ["MAX_EVENTS", "TRANSCRIPT_CHARS", "TRANSCRIPT_TYPES", "SessionTranscript"]

TRANSCRIPT_CHARS = 100_000
"""Characters of a transcript at most. The oldest parts are left out."""

MAX_EVENTS = 20_000
"""Last seqs of the journal that a transcript looks at."""

TRANSCRIPT_TYPES = ["prompt_accepted", "message", "tool_use", "turn_completed"]


class SessionTranscript:
    """Transcript of the events that it has taken."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._chars = 0
        self._cut = False

    def take(self, envelope: Envelope) -> None:
        """Take the next event."""
        match envelope.event:
            case PromptAccepted(text=text):
                self._add(f"## User\n\n{text or '(the text of this prompt is not kept)'}")
            case AssistantMessage(parent_tool_use_id=None, blocks=blocks):
                if words := "".join(block.text or "" for block in blocks if block.kind == "text"):
                    self._add(words)
            case ToolUse(parent_tool_use_id=None, name=name, input=given):
                self._add(f"- tool: {title_of(name, given)}")
            case TurnCompleted(outcome=outcome, error=error) if outcome != "completed":
                self._add(f"(the turn {envelope.turn_id} is {outcome}{f': {error.message}' if error else ''})")
            case Gap():
                self._cut = True

    def text(self) -> str:
        """Return the whole transcript."""
        head = ["(Older parts are left out.)"] if self._cut else []
        return "\n\n".join([*head, *self._parts])

    def _add(self, part: str) -> None:
        self._parts.append(part[-TRANSCRIPT_CHARS:])
        self._chars += len(self._parts[-1])
        while self._chars > TRANSCRIPT_CHARS:
            self._chars -= len(self._parts.pop(0))
            self._cut = True

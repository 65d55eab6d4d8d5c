"""Parts of an exported session, in the order of its events. The formats write these parts, and read no events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clisup.client.raw import JsonObject

__all__ = [
    "Call",
    "CallResult",
    "Note",
    "Part",
    "PromptText",
    "SaidText",
    "SessionHead",
    "Text",
    "TurnBegin",
    "TurnEnd",
]


@dataclass(frozen=True, slots=True)
class Text:
    """Text of others as it is, and the number of its bytes that were cut off. The formats make it harmless."""

    text: str
    cut: int = 0

    def to_json(self) -> JsonObject:
        """Return the members of the text in JSON."""
        return {"text": self.text, "cut_bytes": self.cut}


@dataclass(frozen=True, slots=True)
class SessionHead:
    """Session, as `session/get` describes it. `at` is the time of the export."""

    session: JsonObject
    at: str


@dataclass(frozen=True, slots=True)
class TurnBegin:
    """Beginning of a turn, with its prompt. Without a prompt the CLI began the turn by itself, or the text is not kept."""

    turn_id: str
    at: str
    prompt: PromptText | None


@dataclass(frozen=True, slots=True)
class PromptText:
    """Prompt of a turn, or one that was sent into a running turn. `images` counts its images."""

    body: Text
    images: int = 0


@dataclass(frozen=True, slots=True)
class SaidText:
    """Text of the model. `unfinished`: the message never came whole. `synthetic`: the CLI wrote the text itself."""

    kind: Literal["answer", "thinking", "unfinished", "synthetic"]
    body: Text
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a tool. `diff` shows the change that the call asks for."""

    tool_use_id: str
    name: str
    title: str
    body: Text
    diff: Text | None
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of a call of the tool `name`."""

    tool_use_id: str
    name: str
    body: Text
    diff: Text | None
    is_error: bool
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Notable event in one line: a denied tool, the answer to an approval, the watchdog, missing events."""

    kind: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """End of a turn: its `turn_completed`."""

    event: JsonObject


Part = SessionHead | TurnBegin | PromptText | SaidText | Call | CallResult | Note | TurnEnd

"""Conversations as JSON, and their files. A later version reads the files of an earlier one, or refuses them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import UsageError
from clisup.llm.conversation.nodes import Turn
from clisup.llm.conversation.turn_builder import turns_of
from clisup.llm.failures import InvalidRequest
from clisup.llm.files import read_bounded, write_durably
from clisup.llm.messages import Message
from clisup.llm.shapes import problems_of

MAX_FILE_BYTES = 256 * 1024 * 1024


class SavedConversation(BaseModel):
    """Content of a file: all turns, whole, with the marks of edits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["clisup.conversation"] = "clisup.conversation"
    version: Literal[1] = 1
    id: str
    created_at: str
    system: str | None = None
    turns: tuple[Turn, ...] = ()

    def to_json(self) -> str:
        """Return one line of ASCII, because a CLI's output may contain invalid characters."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, *, name: str = "this") -> SavedConversation:
        """Read JSON; `name` is for errors. Raises `UsageError` for other data, and for a later version."""
        try:
            value = json.loads(text)
            if isinstance(value, dict) and value.get("format") == "clisup.conversation" and value.get("version") != 1:
                raise UsageError(
                    f"{name} is a conversation of version {value.get('version')!r}, and this clisup reads version 1",
                    hint="use a newer clisup",
                )
            return cls.model_validate(value)
        except (ValueError, RecursionError) as error:
            what = problems_of(error, whole="it")[0] if isinstance(error, ValidationError) else str(error)
            raise UsageError(
                f"{name} is not a conversation: {what}",
                hint="give a file that a Conversation wrote",
            ) from None


def write_conversation(path: Path, saved: SavedConversation) -> None:
    """Write the file (0600) durably, whole or not at all. Raises `WorldError` (`storage_failed`)."""
    write_durably(path, saved.to_json().encode() + b"\n")


def read_conversation(path: Path) -> SavedConversation | None:
    """Return the conversation of a file, or None without a file. Raises `UsageError` and `WorldError`."""
    data = read_bounded(path, MAX_FILE_BYTES)
    return None if data is None else SavedConversation.from_json(data, name=str(path))


def begun_conversation(path: Path | None, history: Sequence[Message] | Sequence[Turn], now: str) -> SavedConversation:
    """Return the file's conversation, or else one of the history.

    Raises as `read_conversation`, `UsageError` for a missing directory, and `InvalidRequest` for a wrong history or for both sources.
    """
    saved = None if path is None else read_conversation(path)
    if path is not None and not path.parent.is_dir():  # before the first answer is paid for
        raise UsageError(f"the directory of {path} does not exist", hint="create it, or give another path")
    if saved is None:
        turns = tuple(part for part in history if isinstance(part, Turn))
        messages = [part for part in history if isinstance(part, Message)]
        if len(history) not in (len(turns), len(messages)):
            raise InvalidRequest(
                "the history has values other than messages or turns",
                hint="give messages, Message.user(...) and so on, or the turns of another conversation",
            )
        return SavedConversation(id=uuid.uuid4().hex, created_at=now, turns=turns or turns_of(messages, at=now))
    if history:
        raise InvalidRequest(
            f"{path} holds a conversation already, so a history cannot begin another one",
            hint="give another path, or no history",
        )
    return saved

"""Conversations as JSON, and their files. A later version reads the files of an earlier one, or refuses them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from clisup.errors import UsageError
from clisup.llm.conversation.nodes import Turn
from clisup.llm.conversation.turn_builder import turns_of
from clisup.llm.failures import InvalidRequest
from clisup.llm.files import read_bounded, write_durably
from clisup.llm.messages import FrozenModel, Message
from clisup.llm.shapes import problems_of

MAX_FILE_BYTES = 256 * 1024 * 1024


class SavedConversation(FrozenModel):
    """Content of a file: all turns, whole, with the marks of edits."""

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

    def write(self, path: Path) -> None:
        """Write a file (0600) durably, whole or not at all. Raises `WorldError` (`storage_failed`)."""
        write_durably(path, self.to_json().encode() + b"\n")


def begun_conversation(path: Path | None, history: Sequence[Message] | Sequence[Turn], now: str) -> SavedConversation:
    """Return the file's conversation, or else one of the history.

    Raises `UsageError` for a file of something else and a missing directory, `WorldError` for an unreadable file, and
    `InvalidRequest` for a wrong history or for both sources.
    """
    saved = None
    if path is not None:
        if (data := read_bounded(path, MAX_FILE_BYTES)) is not None:
            saved = SavedConversation.from_json(data, name=str(path))
        if not path.parent.is_dir():  # before the first answer is paid for
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

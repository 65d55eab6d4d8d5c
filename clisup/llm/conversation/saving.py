"""A conversation as JSON, and its file. A later version reads what an earlier one wrote, or says that it cannot."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import UsageError
from clisup.llm.conversation.building import turns_of
from clisup.llm.conversation.nodes import Turn
from clisup.llm.durable import read_bounded, write_durably
from clisup.llm.failures import InvalidRequest
from clisup.llm.messages import Message
from clisup.llm.schemas import problems_of

__all__ = ["MAX_FILE_BYTES", "SavedConversation", "begun_conversation", "read_conversation", "write_conversation"]

MAX_FILE_BYTES = 256 * 1024 * 1024


class SavedConversation(BaseModel):
    """What a file holds: all turns with all that was said, and the marks that say what of it is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["clisup.conversation"] = "clisup.conversation"
    version: Literal[1] = 1
    id: str
    created_at: str
    system: str | None = None
    turns: tuple[Turn, ...] = ()

    def to_json(self) -> str:
        """One line of ASCII: what a CLI said may hold characters that are none."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, *, name: str = "this") -> SavedConversation:
        """`name` is for errors. Raises `UsageError` for what is no conversation, or one of a later version."""
        try:
            value = json.loads(text)
            if isinstance(value, dict) and value.get("format") == "clisup.conversation" and value.get("version") != 1:
                raise UsageError(
                    f"cannot read {name}, because it is a conversation of version {value.get('version')!r} and this clisup knows 1",
                    hint="read it by the clisup that wrote it, or a newer one",
                )
            return cls.model_validate(value)
        except (ValueError, RecursionError) as error:
            what = problems_of(error, whole="it")[0] if isinstance(error, ValidationError) else str(error)
            raise UsageError(
                f"cannot read {name} as a conversation, because it is none: {what}",
                hint="give what a Conversation wrote",
            ) from None


def write_conversation(path: Path, saved: SavedConversation) -> None:
    """Write the file (0600), whole or not at all, and on the disk when it returns. Raises `WorldError` (`storage_failed`)."""
    write_durably(path, saved.to_json().encode() + b"\n")


def read_conversation(path: Path) -> SavedConversation | None:
    """What the file holds; None where there is none. Raises `UsageError` and `WorldError`."""
    data = read_bounded(path, MAX_FILE_BYTES)
    return None if data is None else SavedConversation.from_json(data, name=str(path))


def begun_conversation(path: Path | None, history: Sequence[Message] | Sequence[Turn], now: str) -> SavedConversation:
    """What the file has, else what was given, else nothing. Raises as `read_conversation`, `UsageError` where the directory
    is not there, and `InvalidRequest` for a history that is none, or where there are both.
    """
    saved = None if path is None else read_conversation(path)
    if path is not None and not path.parent.is_dir():  # else the first answer is paid for, and then not kept
        raise UsageError(
            f"cannot keep a conversation in {path}, because there is no such directory", hint="make it, or give another"
        )
    if saved is None:
        turns = tuple(part for part in history if isinstance(part, Turn))
        messages = [part for part in history if isinstance(part, Message)]
        if len(history) not in (len(turns), len(messages)):
            raise InvalidRequest(
                "cannot begin with this history, because it is neither messages nor turns",
                kind="invalid_request",
                hint="give messages, Message.user(...) and so on, or the turns of another conversation",
            )
        return SavedConversation(id=uuid.uuid4().hex, created_at=now, turns=turns or turns_of(messages, at=now))
    if history:
        raise InvalidRequest(
            f"cannot begin with this history, because {path} holds a conversation already",
            kind="invalid_request",
            hint="give another path, or no history",
        )
    return saved

"""A conversation as JSON, and its file. A later version reads what an earlier one wrote, or says that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from clisup.errors import UsageError
from clisup.llm.conversation.nodes import Turn
from clisup.llm.durable import read_bounded, write_durably

__all__ = ["MAX_FILE_BYTES", "SavedConversation", "read_conversation", "write_conversation"]

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
    def from_json(cls, text: str | bytes) -> SavedConversation:
        """Raises `UsageError` for what is no conversation, or one of a later version."""
        try:
            value = json.loads(text)
            if isinstance(value, dict) and value.get("format") == "clisup.conversation" and value.get("version") != 1:
                raise UsageError(
                    f"cannot read this conversation, because it is of version {value.get('version')!r} and this clisup knows 1",
                    hint="read it by the clisup that wrote it, or a newer one",
                )
            return cls.model_validate(value)
        except (ValueError, RecursionError) as error:
            what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise UsageError(f"cannot read this as a conversation, because it is none: {what}") from None


def write_conversation(path: Path, saved: SavedConversation) -> None:
    """Write the file (0600), whole or not at all, and on the disk when it returns. Raises `WorldError` (`storage_failed`)."""
    write_durably(path, saved.to_json().encode() + b"\n")


def read_conversation(path: Path) -> SavedConversation | None:
    """What the file holds; None where there is none. Raises `UsageError` and `WorldError`."""
    data = read_bounded(path, MAX_FILE_BYTES)
    if data is None:
        return None
    try:
        return SavedConversation.from_json(data)
    except UsageError as error:
        error.message = f"{path}: {error.message}"
        raise

"""Params and result of `session/note`: a notice by a client in the session's journal."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field, field_validator

from clisup.wire.models import Params, Result, SessionId

__all__ = ["MAX_DATA_BYTES", "MAX_MESSAGE_BYTES", "NoteParams", "NoteResult"]

MAX_MESSAGE_BYTES = 4 * 1024
MAX_DATA_BYTES = 64 * 1024


class NoteParams(Params):
    """`code` begins with `client.`, so that no note looks like a notice of the daemon."""

    session_id: SessionId
    code: Annotated[str, Field(pattern=r"^client\.[a-z0-9][a-z0-9_.-]{0,63}$")]
    message: str
    data: dict[str, Any] | None = None

    @field_validator("message")
    @classmethod
    def _is_short(cls, message: str) -> str:
        if len(message.encode("utf-8", "replace")) > MAX_MESSAGE_BYTES:
            raise ValueError(f"the message has more than {MAX_MESSAGE_BYTES} bytes")
        return message

    @field_validator("data")
    @classmethod
    def _is_small(cls, data: dict[str, Any] | None) -> dict[str, Any] | None:
        if data is not None and len(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")) > MAX_DATA_BYTES:
            raise ValueError(f"the data has more than {MAX_DATA_BYTES} bytes as JSON")
        return data


class NoteResult(Result):
    """Seq of the `notice` in the journal."""

    seq: int

"""Params and result of `daemon/log`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from clisup.rpc.models import Params, Result, SessionId

__all__ = ["LogParams", "LogResult"]


class LogParams(Params):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    session_id: SessionId | None = None


class LogResult(Result):
    lines: list[dict[str, Any]]
    dropped: int
    held_back: dict[str, int]

"""Params and results of the `daemon/...` methods. The others are in `clisup.wire.models`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from clisup.config.keys import Effect
from clisup.wire.models import Params, Result, SessionId


class ShutdownParams(Params):
    mode: Literal["drain", "detach", "kill"] = "drain"


class ReloadParams(Params):
    dry_run: bool = False


class ChangedKey(Result):
    key: str
    what: Literal["changed", "added", "removed"]
    effect: Effect


class ReloadResult(Result):
    file: str
    changed: list[ChangedKey]


MetricsFormat = Literal["prometheus", "openmetrics"]


class MetricsParams(Params):
    format: MetricsFormat = "prometheus"


class MetricsResult(Result):
    text: str
    content_type: str


class LogParams(Params):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    session_id: SessionId | None = None


class LogResult(Result):
    lines: list[dict[str, Any]]
    dropped: int
    held_back: dict[str, int]

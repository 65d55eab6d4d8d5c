"""Params and result of `daemon/gc`; `clisup gc --json` prints the result, also where no daemon runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clisup.wire.models import Params, Result

__all__ = ["OLDER_THAN_S", "GcFailure", "GcItem", "GcParams", "GcResult", "Kind"]

OLDER_THAN_S = 7 * 86_400.0
Kind = Literal["session", "events", "private", "run", "scratch", "temporary", "trash", "cgroup", "socket"]


class GcParams(Params):
    """`older_than_s` is of closed sessions alone: all else that is found is of no use from its first moment."""

    dry_run: bool = False
    older_than_s: Annotated[float, Field(ge=0, le=3.2e9, allow_inf_nan=False)] = OLDER_THAN_S


class GcItem(Result):
    """Something that was removed, or would be."""

    kind: Kind
    path: str
    session_id: str | None
    bytes: int
    reason: str


class GcFailure(Result):
    """Something that could not be removed, and why."""

    path: str
    error: str


class GcResult(Result):
    """`items` are what was removed, or with `dry_run` would be; `more` were found beyond what one call removes."""

    dry_run: bool
    items: list[GcItem]
    bytes: int
    failed: list[GcFailure]
    more: int

"""Params and result of `daemon/gc`; `clisup gc --json` prints the result, with and without a daemon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clisup.wire.models import Params, Result

__all__ = ["OLDER_THAN_S", "GcFailure", "GcItem", "GcParams", "GcResult", "Kind"]

OLDER_THAN_S = 7 * 86_400.0
Kind = Literal["session", "events", "private", "run", "scratch", "temporary", "trash", "cgroup", "socket"]


class GcParams(Params):
    """`older_than_s` (seconds) applies to closed sessions only. Leftovers are removed at any age."""

    dry_run: bool = False
    older_than_s: Annotated[float, Field(ge=0, le=3.2e9, allow_inf_nan=False)] = OLDER_THAN_S


class GcItem(Result):
    """Removed file or directory. With `dry_run`: a file or directory that a real run would remove."""

    kind: Kind
    path: str
    session_id: str | None
    bytes: int
    reason: str


class GcFailure(Result):
    """File or directory that the daemon failed to remove, with the reason."""

    path: str
    error: str


class GcResult(Result):
    """`items` lists what one call removed, or with `dry_run` would remove. `more` counts findings beyond the limit of one call."""

    dry_run: bool
    items: list[GcItem]
    bytes: int
    failed: list[GcFailure]
    more: int

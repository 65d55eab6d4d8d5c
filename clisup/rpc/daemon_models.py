"""Params and results of what one asks of the daemon itself; the others are in `clisup.rpc.models`."""

from __future__ import annotations

from typing import Literal

from clisup.core.config_keys import Effect
from clisup.rpc.models import Params, Result


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

"""Params and result of `daemon/metrics`."""

from __future__ import annotations

from typing import Literal

from clisup.rpc.models import Params, Result

__all__ = ["MetricsFormat", "MetricsParams", "MetricsResult"]

MetricsFormat = Literal["prometheus", "openmetrics"]


class MetricsParams(Params):
    format: MetricsFormat = "prometheus"


class MetricsResult(Result):
    text: str
    content_type: str

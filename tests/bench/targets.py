"""What the daemon is to reach: `must`, and what would be splendid. Ratios of one run, medians, on two cores."""

from __future__ import annotations

from tests.bench.figures import Target

__all__ = ["TARGETS"]

TARGETS = {
    "a turn: syncs": Target("value", "less", 3, 2),
    "a turn: futex calls": Target("value", "less", 60, 30),
    "CPU to orjson": Target("ratio", "less", 5, 2),
    "CPU to the SDK": Target("ratio", "less", 1 / 4, 1 / 8),
    "throughput to a relay": Target("ratio", "more", 0.2, 0.5),
    "16 clients": Target("ratio", "less", 1.2, 1.05),
    "p50 to a relay": Target("ratio", "less", 5, 3),
    "p99 added": Target("value", "less", 2.0, 1.0),
    "p99 beside huge lines": Target("value", "less", 4.0, 2.0),
    "base": Target("value", "less", 45, 45),
    "idle session": Target("value", "less", 24, 8),
    "keeper": Target("value", "less", 4096, 512),
    "cold start": Target("value", "less", 30, 5),
    "warm start": Target("value", "less", 30, 5),
    "keeper's start": Target("value", "less", 15, 2),
    "ten keepers": Target("value", "less", 60, 60),
    "status": Target("ratio", "less", 3, 2),
    "recovery of 50": Target("value", "less", 0.5, 0.15),
    "recovery of 500": Target("value", "less", 4, 1),
    "exponent": Target("value", "less", 0.05, 0.0),
}

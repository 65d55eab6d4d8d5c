"""What the daemon is to reach: `must`, and what would be splendid. Ratios of one run, medians, on two cores."""

from __future__ import annotations

from tests.bench.figures import Target

__all__ = ["TARGETS"]

TARGETS = {
    "paced cores": Target("value", "less", 0.30, 0.10),
    "paced lines": Target("value", "more", 10_000, 20_000),
    "a turn: syncs": Target("value", "less", 3, 2),
    "a turn: futex calls": Target("value", "less", 60, 30),
    "CPU to orjson": Target("ratio", "less", 5.5, 4),
    "CPU to the SDK": Target("ratio", "less", 0.3, 0.2),
    "throughput to a relay": Target("ratio", "more", 0.12, 0.2),
    "throughput to blemees": Target("ratio", "more", 4, 5),
    "a further client": Target("value", "less", 0.25, 0.15),
    "p50 of 1": Target("ratio", "less", 8, 5),
    "p50 of 100": Target("ratio", "less", 12, 8),
    "p99 of 100": Target("value", "less", 5, 2),
    "p99 beside huge lines": Target("value", "less", 4.0, 2.0),
    "base": Target("value", "less", 55, 45),
    "idle session": Target("value", "less", 24, 8),
    "keeper": Target("value", "less", 4096, 512),
    "cold start": Target("value", "less", 40, 5),
    "warm start": Target("value", "less", 40, 5),
    "ten at once": Target("value", "less", 60, 30),
    "status": Target("ratio", "less", 4, 2),
    "status of many": Target("value", "less", 30, 10),
    "empty start": Target("value", "less", 0.30, 0.22),
    "more for 50": Target("value", "less", 0.12, 0.05),
    "1,000 answer": Target("value", "less", 2, 1),
    "1,000 adopted": Target("value", "less", 3, 2),
    "long turns": Target("ratio", "less", 2.0, 1.2),
    "exponent": Target("value", "less", 0.05, 0.0),
}

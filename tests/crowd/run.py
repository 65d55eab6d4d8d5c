"""`make crowd`: a well-behaved client beside crowds of slow, broken and greedy ones. Exit 1 if any of them costs it anything.

    python -m tests.crowd.run [--json PATH] [--only SCENE]

`SECONDS` (20) in the environment is the length of a scene. `SABOTAGE=unfair` switches the daemon's fair share off: the run must
then fail.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from tests.crowd.scenes import SCENES, Crowd, Result, quantiles

__all__ = ["broken"]

LIMIT_MS = 50.0
"""Fault 47: of the p99 of the well-behaved client's pings."""
RSS_LIMIT_MB = 1024.0
"""256 MiB are held for clients at most; copies of them, 1,200 connections and the allocator's holes come on top."""
HEAD = "{:17} {:>8} {:>6} {:>7} {:>7} {:>7} {:>8} {:>8} {:>11} {:>7} {:>5}  offenders' answers a second"
ROW = "{:17} {:8.1f} {:6} {:7.1f} {:7.1f} {:7.1f} {:8.1f} {:8.1f} {:>11} {:7.0f} {:5.2f}  {}"


def main() -> int:
    options = _arguments()
    seconds = float(os.environ.get("SECONDS", "20"))
    began = time.monotonic()
    print(
        HEAD.format(
            "scene", "hello ms", "pings", "p50", "p99", "max ms", "lag p50", "p99 ms", "events", "rss MB", "cpu"
        ),
        flush=True,
    )
    results: list[Result] = []
    with Crowd(unfair=os.environ.get("SABOTAGE") == "unfair") as crowd:
        for scene in SCENES:
            if options.only in (None, scene.name):
                results.append(crowd.play(scene, seconds))
                print(_row(results[-1]), flush=True)
    problems = [problem for result in results for problem in broken(result)]
    worst, lost = max(quantiles(result.pings_ms)["p99"] for result in results), sum(result.lost for result in results)
    if options.json:
        options.json.write_text(json.dumps(_figures(results, problems), indent=1) + "\n")
    print(
        f"{len(results)} scenes, {time.monotonic() - began:.0f} s", *(f"! {problem}" for problem in problems), sep="\n"
    )
    print(f"well-behaved p99 {worst:.1f} ms (limit {LIMIT_MS:.0f}) lost {lost}")
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.crowd.run", description="One good client beside crowds of bad ones.")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", help="play this scene alone", choices=[scene.name for scene in SCENES])
    return parser.parse_args()


def broken(result: Result) -> list[str]:
    """The promises that this scene breaks."""
    p99 = quantiles(result.pings_ms)["p99"]
    found = {
        f"p99 of {p99:.1f} ms": p99 >= LIMIT_MS,
        f"{result.lost} of {result.expected} events lost": result.lost > 0 or not result.expected,
        f"{result.doubled_or_late} events doubled or out of order": result.doubled_or_late > 0,
        f"{result.unanswered} requests unanswered": result.unanswered > 0,
        f"{result.rss_mb:.0f} MB of memory": result.rss_mb > RSS_LIMIT_MB,
    }
    return [f"{result.scene}: {what}" for what, is_broken in found.items() if is_broken]


def _row(result: Result) -> str:
    ping, lag = quantiles(result.pings_ms), quantiles(result.lags_ms)
    served = ", ".join(f"{kind} {rate:.0f}" for kind, rate in result.served.items())
    refused = f"; {result.refused} overloaded" if result.refused else ""
    return ROW.format(result.scene, result.hello_ms, len(result.pings_ms), ping["p50"], ping["p99"], ping["max"], lag["p50"], lag["p99"],
                      f"{result.events}/{result.expected}", result.rss_mb, result.cpu, served + refused)  # fmt: skip


def _figures(results: list[Result], problems: list[str]) -> dict[str, Any]:
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    return {"machine": machine, "problems": problems, "scenes": [result.figures() for result in results]}


if __name__ == "__main__":
    sys.exit(main())

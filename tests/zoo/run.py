"""`make zoo`: kill every animal in every way, again and again, pause a daemon, and print what was left. Exit 1 if anything.

    python -m tests.zoo.run [--json PATH] [--workers N]

`KILLS` (1000) and `PAUSES` (200) in the environment say how much. `CLI=codex` lets a live codex start the animals (84 and 4).
`SABOTAGE=walk` breaks the keeper's walk so that it
spares one process of each tree, `SABOTAGE=pause` makes the daemon take a pause for silence: the run must then fail.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from clisup.host.process.cgroups import CgroupHome
from tests.keeper.keeper_probe import KEEPER, changed_keeper
from tests.zoo import animals, report
from tests.zoo.bystanders import Bystanders
from tests.zoo.cage import PREFIX, inside
from tests.zoo.pauses import Pauses, pause
from tests.zoo.rounds import ENDINGS, METHODS, Outcome, Task, play

WORKERS = 2
LEFT_S = 3.0  # PID 1 may take a while to reap


def main() -> int:
    options = _arguments()
    scratch = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    try:
        return _run(options, scratch)
    finally:
        shutil.rmtree(scratch)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.zoo.run", description="Kill every kind of survivor, and count what is left."
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--workers", type=int, default=WORKERS)
    return parser.parse_args()


def _run(options: argparse.Namespace, scratch: Path) -> int:
    began = time.monotonic()
    if os.environ.get("CLI") == "codex":
        from tests.zoo import codex

        return codex.main(int(os.environ.get("KILLS", "84")), int(os.environ.get("PAUSES", "4")))
    kills, pauses = int(os.environ.get("KILLS", "1000")), int(os.environ.get("PAUSES", "200"))
    paused = pause(pauses, naive=os.environ.get("SABOTAGE") == "pause") if pauses else Pauses()
    if pauses:
        print(f"{paused.pauses} pauses, {paused.turns} healthy turns, {paused.false_kills} ended; hung turns: "
              f"{paused.hung_ended} of {paused.hung} ended, at most {paused.worst_hung_s} s after the pause", flush=True)  # fmt: skip
    with Bystanders(scratch) as bystanders:
        outcomes = _play_all(kills, options.workers, _keeper(scratch))
        harmed = bystanders.harmed()
    left = _left()
    verdict = _verdict(outcomes, paused, harmed, left)
    _print(outcomes, verdict, harmed, left)
    print(f"{len(outcomes)} kills, {paused.pauses} pauses, {time.monotonic() - began:.0f} s")
    print(f"survivors: {verdict['survivors']}\nfalse kills: {verdict['false_kills']}")
    if options.json:
        options.json.write_text(json.dumps(_figures(outcomes, paused, verdict), indent=1) + "\n")
    return 0 if not any(verdict.values()) else 1


def _keeper(scratch: Path) -> Path:
    """Return the keeper's file. A sabotaged keeper spares the last process of every list."""
    if os.environ.get("SABOTAGE") != "walk":
        return KEEPER
    return changed_keeper(scratch, "tree.py", "        alive = self.living()\n", "        alive = self.living()[:-1]\n")


def _play_all(kills: int, workers: int, keeper_file: Path) -> list[Outcome]:
    """The cells in turn, so that a short run has all of them."""
    home = CgroupHome.find()
    methods = METHODS if home.available else METHODS[:1]
    if not home.available:
        print("no cgroup can be made here: played without")
    cells = list(itertools.product(animals.KINDS, ENDINGS, methods))
    tasks = [Task(*cell, number) for number in range(kills // len(cells) + 1) for cell in cells][:kills]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(play, tasks, itertools.repeat(home), itertools.repeat(keeper_file)))


def _left() -> list[str]:
    """What `ps` shows of us, zombies of ours included, after a moment for PID 1 to reap."""
    end = time.monotonic() + LEFT_S
    while True:
        lines = subprocess.run(["ps", "-eo", "ppid,stat,pid,args"], capture_output=True, text=True).stdout.splitlines()
        left = [line for line in lines if animals.__file__ in line or f"/tmp/{PREFIX}" in line]
        left += [line for line in lines if line.split()[0] == str(os.getpid()) and line.split()[1].startswith("Z")]
        left += [f"{found.pid} lives in a cage" for found in inside("/tmp") if _caged(found.pid)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def _caged(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(f"/tmp/{PREFIX}")
    except OSError:
        return False


def _verdict(outcomes: list[Outcome], paused: Pauses, harmed: list[str], left: list[str]) -> dict[str, int]:
    """All zero, or the run has failed. A hung turn that was not ended is the other half of the promise on pauses."""
    return {
        "survivors": sum(outcome.survivors for outcome in outcomes) + len(left),
        "false_kills": paused.false_kills + len(harmed),
        "hung_not_ended": paused.hung - paused.hung_ended,
        "keeper_faults": sum(len(outcome.faults) for outcome in outcomes),
        "unnamed": sum(bool(outcome.unnamed) for outcome in outcomes),
    }


def _print(outcomes: list[Outcome], verdict: dict[str, int], harmed: list[str], left: list[str]) -> None:
    print(report.table(report.cells(outcomes)), "", report.table(report.summary(outcomes)), "", sep="\n")
    over = {f"{row['ending']} {row['method']}": row["over_promise"] for row in report.summary(outcomes)}
    print(
        "kills over the promise of fault 10 (2 s, with a cgroup 100 ms):",
        {k: v for k, v in over.items() if v is not None},
    )
    for line in sorted({fault for outcome in outcomes for fault in outcome.faults})[:10] + harmed + left:
        print("!", line)
    print(f"exit records that did not name what had to be killed: {verdict['unnamed']}")
    print(f"bystanders harmed: {len(harmed)}; left running: {len(left)}")


def _figures(outcomes: list[Outcome], paused: Pauses, verdict: dict[str, int]) -> dict[str, Any]:
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    cells, rows = report.cells(outcomes), report.summary(outcomes)
    return {"machine": machine, "verdict": verdict, "pauses": asdict(paused), "cells": cells, "summary": rows}


if __name__ == "__main__":
    sys.exit(main())

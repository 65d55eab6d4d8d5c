"""`make fuzz`: a million hostile inputs for whatever reads bytes of others. Exit 1 if one of them breaks anything.

    python -m tests.fuzz.run [--replay FILE]

`INPUTS` (1000000) and `SEED` (a new one for each run, printed) in the environment. What breaks is made small and saved in `.fuzz/`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from tests.fuzz.atoms import giants
from tests.fuzz.coverage import Coverage
from tests.fuzz.lane import DOORS, SHARES, Played, play, replay, run_one

WORKERS = 2
PIECE = 10_000  # inputs that follow from one seed: a finding's piece can be played again alone
GIANT_MIB = 64
GIANT_TARGETS = ("decoder", "wire", "framer", "client")
TRACED = 10_000
DOOR_SHARE = 100  # one connection to the HTTP doors for so many other inputs
FOUND = Path(__file__).resolve().parents[2] / ".fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.fuzz.run", description="Hostile bytes for every reader, by the million."
    )
    parser.add_argument("--replay", type=Path, help="play a saved finding again, and say what it breaks")
    options = parser.parse_args()
    if options.replay:
        finding = replay(options.replay)
        print(finding.where if finding else "it breaks nothing any more")
        return 1 if finding else 0
    inputs = int(os.environ.get("INPUTS", "1000000"))
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}: {inputs} inputs in {WORKERS} processes: {SHARES} of a hundred", flush=True)
    return run(inputs, seed)


def run(inputs: int, seed: int, *, giant_mib: int = GIANT_MIB, traced: int = TRACED) -> int:
    """Play them in pieces, and the giants; print what came of it."""
    began = time.monotonic()
    total = Played()
    pieces = [(seed + at // PIECE, min(PIECE, inputs - at)) for at in range(0, inputs, PIECE)]
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        reached = pool.submit(_traced, seed, traced)
        jobs = [pool.submit(_giants, giant_mib), *(pool.submit(play, *piece) for piece in pieces)]
        jobs += [pool.submit(play, at, inputs // DOOR_SHARE // WORKERS, DOORS) for at in (seed, seed + 1)]
        for number, job in enumerate(as_completed(jobs), 1):
            _print_new(job.result(), total)
            total += job.result()
            if number % 5 == 0 or number == len(jobs):
                seconds = time.monotonic() - began
                print(f"{total.inputs} inputs, {seconds:.0f} s, {total.inputs / seconds:.0f}/s, "
                      f"{len(total.findings)} findings", flush=True)  # fmt: skip
        print(reached.result())
    print(f"inputs {total.inputs} exceptions {total.exceptions} broken_promises {total.promises}")
    return 1 if total.findings else 0


def _print_new(played: Played, total: Played) -> None:
    for finding in played.findings.values():
        if finding.where not in total.findings:
            print(f"! {finding.target}: {finding.where}\n  {finding.data[:300]!r}\n  {finding.save(FOUND)}", flush=True)


def _giants(mib: int) -> Played:
    """Single lines of `mib` MiB, each to every reader of lines; memory is not looked at here."""
    played = Played()
    for name, data in giants(mib).items():
        for target in GIANT_TARGETS:
            finding = run_one(target, data + b"\n", salt=3)
            if finding is not None:
                finding = replace(finding, data=data[:200], where=f"{finding.where} ({mib} MiB: {name})")
            played.take(finding)
    return played


def _traced(seed: int, inputs: int) -> str:
    """How much of the code the first inputs reach."""
    with Coverage() as coverage:
        play(seed, inputs)
    rows = coverage.report()
    lines, reached = sum(row[1] for row in rows), sum(row[2] for row in rows)
    missed = "; ".join(f"{name} {lines}" for name, _, _, lines in rows if lines)
    return f"the first {inputs} inputs reach {reached} of {lines} lines ({100 * reached / lines:.1f} %); not: {missed}"


if __name__ == "__main__":
    sys.exit(main())

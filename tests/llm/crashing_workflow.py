"""Run as a program: kill a workflow with SIGKILL at every place where it touches its trace, and go on from what is left.

Each run is a child process of its own. A place is the n-th write or sync of the trace (before it, in its middle, after it), the n-th
answer of the model, or the n-th `on_stage`. What the model is asked is written to a file of its own by one `write` each, so it outlives
the child. The parent prints a JSON object for each place: what was recorded when the child died, and what was asked by whom.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from clisup.llm import files
from clisup.llm.budget import Budget
from clisup.llm.testing import Asked, ScriptedModel
from clisup.llm.workflow import Loop, Stage, StageRun, read_trace
from clisup.llm.workflow import trace as trace_module

ROUNDS = 2
PLACES = (
    "before write",
    "half write",
    "after write",
    "before sync",
    "after sync",
    "before answer",
    "after answer",
    "told",
)


class Killer:
    """Ends the process at the `nth` time of a place."""

    def __init__(self, place: str, nth: int) -> None:
        self._place, self._left = place, nth

    def at(self, place: str, before: Callable[[], object] = lambda: None) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                before()
                os.kill(os.getpid(), signal.SIGKILL)


class DeadlyOs:
    """`os`, as the trace sees it, and what syncs its directory."""

    def __init__(self, killer: Killer) -> None:
        self._killer = killer

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: memoryview) -> int:
        self._killer.at("before write")
        self._killer.at("half write", lambda: os.write(fd, data[: len(data) // 2]))
        written = os.write(fd, data)
        self._killer.at("after write")
        return written

    def fsync(self, fd: int) -> None:
        self._killer.at("before sync")
        os.fsync(fd)
        self._killer.at("after sync")


def workflow(directory: Path, killer: Killer) -> dict[str, Any]:
    """In a child: from wherever the trace ends to the end of the workflow, or of the process."""
    trace_module.os = files.os = DeadlyOs(killer)  # type: ignore[attr-defined]
    log = os.open(directory / "asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def answer(asked: Asked) -> str:
        killer.at("before answer")
        os.write(log, asked.prompt.text.encode() + b"\n")
        killer.at("after answer")
        return f"answer to {asked.prompt.text} after {len(asked.messages) - 1}"

    async def think(run: StageRun) -> str:
        return (await run.ask(f"think {run.round}")).text

    async def do(run: StageRun) -> str:
        async def begin() -> str:
            return (await run.ask(f"begin {run.round}")).text

        begun = await run.step("begin", begin)
        return f"{begun}, {(await run.ask(f'end {run.round}')).text}"

    async def main() -> dict[str, Any]:
        loop = Loop(Stage("think", think), Stage("do", do), max_rounds=ROUNDS)
        result = await loop.run(
            "the task",
            model=ScriptedModel(then=answer),
            budget=Budget(iterations=ROUNDS),
            trace=directory / "trace",
            on_stage=lambda done: None if done.replayed else killer.at("told"),
        )
        return {"outcome": result.outcome, "rounds": [dict(one) for one in result.rounds]}

    try:
        return trio.run(main)
    finally:
        os.close(log)


def in_child(directory: Path, place: str, nth: int) -> dict[str, Any] | None:
    """Its result; None: it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            (directory / "result").write_text(json.dumps(workflow(directory, Killer(place, nth))))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.WEXITSTATUS(status) == 0
    result: dict[str, Any] = json.loads((directory / "result").read_text())
    return result


def recorded(directory: Path) -> list[str]:
    trace = directory / "trace"
    if not trace.exists() or b"\n" not in trace.read_bytes():
        return []
    progress = read_trace(trace)
    prompts = {"think": ["think"], "do": ["begin", "end"]}
    done = [f"{prompt} {one.round}" for one in progress.completed for prompt in prompts[one.stage]]
    return [*done, *(f"{one.step} {one.round}" for one in progress.steps)]


def asked(directory: Path) -> list[str]:
    log = directory / "asked"
    return log.read_text().splitlines() if log.exists() else []


def kill_once(directory: Path, place: str, nth: int) -> dict[str, Any]:
    killed = in_child(directory, place, nth) is None
    kept, before = recorded(directory), asked(directory)
    result = in_child(directory, "nowhere", 1)
    return {
        "place": f"{place} {nth}",
        "killed": killed,
        "recorded": kept,
        "asked_before": before,
        "asked_after": asked(directory)[len(before) :],
        "result": result,
    }


def kill_again_and_again(directory: Path, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    wrong: list[str] = []
    kills, result = 0, None
    while result is None:
        kept, before = recorded(directory), asked(directory)
        place = chance.choice(PLACES) if kills < 12 else "nowhere"
        result = in_child(directory, place, chance.randint(1, 4))
        wrong += [one for one in asked(directory)[len(before) :] if one in kept]
        kills += result is None
    return {"seed": seed, "kills": kills, "asked_what_was_recorded": wrong, "result": result}


def main(directory: Path, seeds: int) -> None:
    for place in PLACES:
        for nth in range(1, 100):
            here = directory / f"{place.replace(' ', '-')}-{nth}"
            here.mkdir()
            seen = kill_once(here, place, nth)
            if not seen["killed"]:
                break
            print(json.dumps(seen))
    for seed in range(seeds):
        here = directory / f"seed-{seed}"
        here.mkdir()
        print(json.dumps(kill_again_and_again(here, seed)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

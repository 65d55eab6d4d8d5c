"""`make fleet-net`: boxes whose network is cut under load; compare the copies with the journals. Exit 1 on a fault.

    python -m tests.fleet_chaos.run_net [--json PATH] [--keep]

In the environment: `CUTS` (10) of 4 to 18 s, `SEED` (a random one). Without the right to make networks it says so and exits 0;
with `CLISUP_CI` it exits 1.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import AsyncExitStack

from clisup.fleet.nats_engine import connect_member
from tests.fleet_chaos.figures import Figure
from tests.fleet_chaos.ground import BOXES, Ground
from tests.fleet_chaos.jobs import Jobs
from tests.fleet_chaos.load import Load
from tests.fleet_chaos.networks import HOSTS, Networks, enter, refusal
from tests.fleet_chaos.run import (
    RATE,
    SESSIONS,
    SETTLE_S,
    Settings,
    Stage,
    _arguments,
    compared,
    copied_within,
    report,
)
from tests.fleet_chaos.watching import Appender, Watcher, until

LONGEST_S, SHORTEST_S, REST_S = 18.0, 4.0, 6.0
LONG_CUT_S = 60.0
"""A cut in which a job of the box becomes lost: it is gone after 20 s."""
JOBS, JOBS_S = 60, 120.0


async def cuts(networks: Networks, number: int, chance: random.Random) -> None:
    """Cut one or two boxes off, several times."""
    for _ in range(number):
        boxes = chance.sample(BOXES, chance.choice((1, 2)))
        for box in boxes:
            networks.cut(box)
        await asyncio.sleep(chance.uniform(SHORTEST_S, LONGEST_S))
        for box in boxes:
            networks.join(box)
        await asyncio.sleep(REST_S)


async def long_cut(networks: Networks, stage: Stage, jobs: Jobs) -> list[Figure]:
    """Cut one box off for a minute while a job runs there. The others declare it lost, and the box reports it later."""
    box = stage.ground.boxes[0]
    job = await jobs.one_for(box.name, "@sleep 30\ndone")
    started = await until(lambda: jobs.status(job) == "started", SETTLE_S)
    networks.cut(box.name)
    began = time.monotonic()
    lost = await until(lambda: jobs.status(job) == "lost", LONG_CUT_S)
    await asyncio.sleep(max(0.0, LONG_CUT_S - (time.monotonic() - began)))
    networks.join(box.name)
    caught_up = await copied_within(stage.watcher, [box], SETTLE_S)
    done = await until(lambda: jobs.status(job) == "done", SETTLE_S)
    was_late = started is not None and done is not None and jobs.states[job].late
    return [
        Figure("job of a cut box, lost after", lost, 40, "s"),
        Figure("its end came late, not at all", 0 if was_late else 1, 0),
        Figure("caught up after a cut", caught_up, 20, "s"),
    ]


async def play(ground: Ground, networks: Networks, number: int, seed: int) -> list[Figure]:
    """Play the whole run, and return its figures."""
    async with AsyncExitStack() as stack:
        watching, appending, submitting = [
            await stack.enter_async_context(connect_member(ground.member(name))) for name in ("watcher", "probe", "ci")
        ]
        loads = [Load(box.socket, str(box.cwd), sessions=SESSIONS, rate=RATE) for box in ground.boxes]
        async with asyncio.TaskGroup() as tasks:
            stage = Stage(ground, Watcher(watching), Appender(appending), submitting, loads, tasks)
            stage.running = [tasks.create_task(load.run()) for load in loads]
            jobs = Jobs(submitting, ground.jobs_directory, JOBS, JOBS_S, seed)
            others = [tasks.create_task(part) for part in (stage.watcher.run(), jobs.watch())]
            await until(lambda: stage.watcher.events > 0, SETTLE_S)
            async with asyncio.TaskGroup() as play:
                play.create_task(jobs.submit())
                play.create_task(cuts(networks, number, random.Random(seed)))
            figures = await long_cut(networks, stage, jobs)
            figures.append(Figure("copied after the last cut", await stage.settle(), SETTLE_S, "s"))
            await until(lambda: jobs.ended == len(jobs.requests), SETTLE_S)
            figures += [*jobs.figures(), *await compared(stage)]
            for task in others:
                task.cancel()
    return figures


def main() -> int:
    if reason := refusal():
        print(f"make fleet-net: skipped, because this machine gives {reason}")
        return 1 if os.environ.get("CLISUP_CI") else 0
    enter("tests.fleet_chaos.run_net")
    options = _arguments()
    number, seed = int(os.environ.get("CUTS") or 10), int(os.environ.get("SEED") or random.randrange(1_000_000))
    print(f"seed {seed}; {number} cuts", flush=True)
    began = time.monotonic()
    networks = Networks(BOXES)
    ground = Ground(HOSTS, {box: networks.inside(box) for box in BOXES})
    try:
        with ground:
            figures = asyncio.run(play(ground, networks, number, seed))
    finally:
        ground.close(keep=options.keep)
    return report(figures, {"cut": number + 1}, time.monotonic() - began, Settings(seed=seed), options.json)


if __name__ == "__main__":
    sys.exit(main())

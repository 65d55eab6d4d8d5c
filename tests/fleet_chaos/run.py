"""`make fleet`: kill agents, nodes, daemons and whole boxes under load; compare the copies with the journals. Exit 1 on a fault.

    python -m tests.fleet_chaos.run [--json PATH] [--keep]

In the environment: `KILLS` (200) within `SECONDS` (150), `JOBS` (1000), `SEED` (a random one).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from clisup.fleet.nats_engine import NatsEngine, connect_member
from tests.fleet.copied import difference, lost_lines
from tests.fleet_chaos.box import Box
from tests.fleet_chaos.faults import Killer, plan
from tests.fleet_chaos.figures import Figure, figure_table, last_line, quantile
from tests.fleet_chaos.ground import Ground
from tests.fleet_chaos.jobs import Jobs
from tests.fleet_chaos.latency import added_latency_ms
from tests.fleet_chaos.load import Load
from tests.fleet_chaos.process import cpu_s, rss_mib
from tests.fleet_chaos.rpc import Line, persistent_call
from tests.fleet_chaos.simulated import simulated_figures
from tests.fleet_chaos.watching import Appender, Watcher, until

__all__ = ["Settings", "Stage", "caught_up_after", "compared"]

SESSIONS, RATE = 8, 20.0  # of a box: 480 events a second on three boxes
QUIET_S, FOLLOW_S, CUT_S = 20.0, 8.0, 60.0
SETTLE_S = 180.0
COMPARE_S = 15.0


@dataclass(frozen=True)
class Settings:
    """What is asked for."""

    kills: int = 200
    seconds: float = 150.0
    jobs: int = 1000
    seed: int = 0


@dataclass
class Stage:
    """Boxes under load, and who watches them."""

    ground: Ground
    watcher: Watcher
    appender: Appender
    submitter: NatsEngine
    loads: list[Load]
    tasks: asyncio.TaskGroup
    running: list[asyncio.Task[None]] = field(default_factory=list)

    async def settle(self) -> float | None:
        """End the load. Return the seconds until everything is copied, or None."""
        for load in self.loads:
            load.stop()
        for task in self.running:
            await task
        return await copied_within(self.watcher, self.ground.boxes, SETTLE_S)


async def ends_of(box: Box) -> dict[str, int]:
    """Return the last seq of each session of a box."""
    line, found, cursor = Line(box.socket), dict[str, int](), None
    try:
        while True:
            page = await persistent_call(line, "session/list", **({"cursor": cursor} if cursor else {}))
            found |= {row["session_id"]: row["next_seq"] - 1 for row in page["sessions"]}
            if (cursor := page.get("next_cursor")) is None:
                return found
    finally:
        line.close()


async def copied_within(watcher: Watcher, boxes: Sequence[Box], patience_s: float) -> float | None:
    """Return the seconds until all that the boxes have now has arrived at the watcher, or None."""
    ends = {(box.name, session): seq for box in boxes for session, seq in (await ends_of(box)).items()}
    return await until(lambda: all(watcher.has(*key) >= seq for key, seq in ends.items()), patience_s)


async def caught_up_after(stage: Stage, box: Box, cut_s: float) -> float | None:
    """Freeze a box's agent. Return the seconds until the copy has what the box has at the end of the cut."""
    box.freeze(True)
    await asyncio.sleep(cut_s)
    box.freeze(False)
    return await copied_within(stage.watcher, [box], SETTLE_S)


async def compared(stage: Stage) -> list[Figure]:
    """Compare the stream with the journals, byte for byte.

    The engine's answer to "which message is the last" may be some milliseconds behind what its readers have (nats-server
    2.11, three nodes), so a copy with lost events is read again for a while.
    """
    boxes, until_s = stage.ground.boxes, time.monotonic() + COMPARE_S
    async with connect_member(stage.ground.member("watcher")) as engine:
        while True:
            found = [await difference(engine, box.name, box.state) for box in boxes]
            if not any(each.lost for each in found) or time.monotonic() > until_s:
                break
            await asyncio.sleep(0.5)
        for box, each in zip(boxes, found, strict=True):
            for line in await lost_lines(engine, box.name, box.state) if each.lost else ():
                print(f"! {line}", flush=True)
    return [
        Figure("events compared", sum(each.events for each in found)),
        Figure("lost", sum(each.lost for each in found), 0),
        Figure("doubled", sum(each.doubled for each in found), 0),
        Figure("differing", sum(each.differing for each in found), 0),
    ]


async def quiet_figures(stage: Stage) -> list[Figure]:
    """Measure while nothing is killed: lag, processor time an event, memory, and the tunnel."""
    boxes, watcher = stage.ground.boxes, stage.watcher
    daemons = [box.daemon.pid for box in boxes if box.daemon is not None]
    agents = [box.agent.pid for box in boxes if box.agent is not None]
    groups = (daemons, agents, stage.ground.nodes.pids)
    watcher.measures, events, before = True, watcher.events, [cpu_s(pids) for pids in groups]
    await asyncio.sleep(QUIET_S)
    number = max(1, watcher.events - events)
    daemon, agent, nodes = ((cpu_s(pids) - spent) * 1e6 / number for pids, spent in zip(groups, before, strict=True))
    watcher.measures = False
    added = await added_latency_ms(boxes[1].socket, boxes[0].member_socket(boxes[1].name), FOLLOW_S)
    return [
        Figure("events a second", number / QUIET_S),
        Figure("lag p50", _ms(quantile(watcher.lags, 0.5)), 300, "ms"),
        Figure("lag p99", _ms(quantile(watcher.lags, 0.99)), None, "ms"),
        Figure("daemon, processor time an event", daemon, None, "us"),
        Figure("agent, share of the daemon's", agent / daemon if daemon else None, 0.6),
        Figure("nodes, share of the daemon's", nodes / daemon if daemon else None, 0.7),
        Figure("agent's memory", max(map(rss_mib, agents)), 40, "MiB"),
        Figure("tunnel adds p50", quantile(added, 0.5), 5, "ms"),
        Figure("tunnel adds p99", quantile(added, 0.99), 50, "ms"),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


async def killed_figures(stage: Stage, settings: Settings, counts: dict[str, int]) -> list[Figure]:
    """Kill under load, while jobs are submitted. Then wait until everything is copied and each job has its end."""
    engine = stage.submitter
    jobs = Jobs(engine, stage.ground.jobs_directory, settings.jobs, settings.seconds, settings.seed)
    watching = stage.tasks.create_task(jobs.watch())
    faults = plan(settings.kills, random.Random(settings.seed))
    killer = Killer(stage.ground.boxes, stage.ground.nodes, faults, settings.seconds, settings.seed)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(killer.run())
        tasks.create_task(jobs.submit())
    counts |= killer.done
    settled = await stage.settle()
    await until(lambda: jobs.ended == len(jobs.requests), SETTLE_S)
    await copied_within(stage.watcher, stage.ground.boxes, SETTLE_S)  # the events of the last jobs, too
    for line in await jobs.endless(stage.ground.boxes):
        print(f"! {line}", flush=True)
    watching.cancel()
    gaps = [gap for at in killer.node_kills if (gap := stage.appender.gap_after(at)) is not None]
    return [
        *jobs.figures(),
        Figure("longest append after a node's kill", max(gaps, default=None), 10, "s"),
        Figure("copied after the last kill", settled, SETTLE_S, "s"),
    ]


async def play(ground: Ground, settings: Settings, counts: dict[str, int]) -> list[Figure]:
    """Play the whole run, and return its figures."""
    async with AsyncExitStack() as stack:
        watching, appending, submitting = [
            await stack.enter_async_context(connect_member(ground.member(name))) for name in ("watcher", "probe", "ci")
        ]
        loads = [Load(box.socket, str(box.cwd), sessions=SESSIONS, rate=RATE) for box in ground.boxes]
        async with asyncio.TaskGroup() as tasks:
            stage = Stage(ground, Watcher(watching), Appender(appending), submitting, loads, tasks)
            stage.running = [tasks.create_task(load.run()) for load in loads]
            others = [tasks.create_task(part.run()) for part in (stage.watcher, stage.appender)]
            await until(lambda: stage.watcher.events > 0, SETTLE_S)
            figures = await quiet_figures(stage)
            say(figures)
            figures.append(
                Figure("caught up after a cut", await caught_up_after(stage, ground.boxes[0], CUT_S), 20, "s")
            )
            figures += await killed_figures(stage, settings, counts)
            say(figures[-8:])
            figures += await compared(stage)
            for task in others:
                while not task.done():  # the client's wait_for may swallow a cancellation under Python 3.11
                    task.cancel()
                    await asyncio.wait({task}, timeout=1.0)
    return figures


def say(figures: Sequence[Figure]) -> None:
    """Print figures as they come."""
    for figure in figures:
        print(f"  {figure.name}: {figure.value}", flush=True)


def main() -> int:
    options = _arguments()
    settings = Settings(
        kills=int(os.environ.get("KILLS") or 200),
        seconds=float(os.environ.get("SECONDS") or 150),
        jobs=int(os.environ.get("JOBS") or 1000),
        seed=int(os.environ.get("SEED") or random.randrange(1_000_000)),
    )
    print(f"seed {settings.seed}; {settings.kills} kills, {settings.jobs} jobs", flush=True)
    began, counts = time.monotonic(), dict[str, int]()
    ground = Ground()
    try:
        with ground:
            figures = asyncio.run(play(ground, settings, counts))
            figures.append(Figure("faults in the logs", len(ground.faults()), 0))
            print(*(f"! {fault}" for fault in ground.faults()), sep="\n")
    finally:
        ground.close(keep=options.keep)
    if not options.keep:
        figures += asyncio.run(simulated_figures())
    return report(figures, counts, time.monotonic() - began, settings, options.json)


def report(figures: list[Figure], counts: dict[str, int], seconds: float, settings: Settings, path: Path | None) -> int:
    """Print the table and the verdict. Return the exit status."""
    print(figure_table(figures))
    print(", ".join(f"{number} {kind}s" for kind, number in sorted(counts.items())), f"killed; {seconds:.0f} s")
    if path:
        rows = [figure._asdict() for figure in figures]
        path.write_text(json.dumps({"seed": settings.seed, "kills": counts, "figures": rows}, indent=1) + "\n")
    print(last_line(sum(counts.values()), figures))
    return 1 if any(figure.is_fault for figure in figures) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fleet_chaos.run", description="Kill a fleet's parts, and compare.")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--keep", action="store_true", help="leave the directory with all logs behind")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

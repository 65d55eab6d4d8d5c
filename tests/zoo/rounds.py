"""One round: a keeper, a fake CLI, an animal, an end. What was left, how long it took, and whether the record named it."""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from clisup.host.process import cgroups
from clisup.host.process.markers import RunMarker
from clisup.host.process.tree import sweep
from tests.keeper.keeper_probe import KEEPER, KeeperProbe, eventually
from tests.zoo import animals
from tests.zoo.cage import Cage, Found

__all__ = ["ENDINGS", "METHODS", "Outcome", "Task", "play"]

METHODS = ("walk", "cgroup")
ENDINGS = ("KILL", "TERM", "exit", "keeper")
TERM_S = 0.2
PATIENCE_S = 8.0
MOMENT_S = 0.05  # what a process takes from its SIGKILL to its last close
DEAF = ("stopped", "ignoring TERM", "zombie parent")  # who surely lives on after TERM, or is a plain named one
GONE = {"re-forking": 1, "guard pair": 1}  # who is not there any more when its killer comes: one of its line is named
PYTHON = ["-I", "-S", animals.__file__, "host"]


@dataclass(frozen=True)
class Task:
    """What to play: the animal, how its run ends, and whether a cgroup is at hand."""

    kind: str
    ending: str
    method: str
    number: int = 0


@dataclass
class Outcome:
    """What came of it. `ms` runs from the order to the last death; `missed` is what the method under test left alive."""

    task: Task
    ms: float | None = None
    host_ms: float | None = None
    missed: int = 0
    unnamed: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def survivors(self) -> int:
        """What counts as a failure. The marker alone is known not to see everything: that is counted apart."""
        return 0 if (self.task.ending, self.task.method) == ("keeper", "walk") else self.missed


def play(task: Task, home: cgroups.CgroupHome, keeper_file: Path = KEEPER) -> Outcome:
    """Play one round, and leave nothing of it."""
    KeeperProbe.file = keeper_file
    session = str(uuid.uuid4())
    cgroup = home.make(_mark(session)) if task.method == "cgroup" else None
    with Cage(cgroup) as cage:
        probe = _start(task, cage, session)
        try:
            return (_keeper_killed if task.ending == "keeper" else _ended)(task, cage, probe, session)
        finally:
            probe.close()


def _mark(session: str) -> RunMarker:
    return RunMarker(session, 1, "0.0")


def _start(task: Task, cage: Cage, session: str) -> KeeperProbe:
    then = {"exit": "exits", "TERM": ("stays", "stubborn")[task.number % 2]}.get(task.ending, "stays")
    marker = _mark(session).variables()
    return KeeperProbe(
        cage.run, [os.path.realpath("/proc/self/exe"), *PYTHON, task.kind, then], marker=marker,
        env={"PATH": "/usr/bin:/bin", **marker}, cwd=str(cage.tree), cgroup=cage.cgroup,
    )  # fmt: skip


def _ended(task: Task, cage: Cage, probe: KeeperProbe, session: str) -> Outcome:
    """The ladder, or the host's own exit: the keeper has to leave nothing."""
    outcome = Outcome(task)
    host = os.pidfd_open(probe.ready()["pid"])
    before: list[Found] = []
    try:
        if task.ending != "exit":
            probe.connect()
            probe.said(b"up\n")
            before = cage.living()
            ordered = time.monotonic()
            probe.send(op="end", ladder=[] if task.ending == "KILL" else [["TERM", TERM_S]], reason="zoo")
            probe.hang_up()
        else:
            (cage.tree / "go").touch()
        died, all_died = cage.last_death(host, PATIENCE_S)
        if task.ending == "exit":
            ordered = died or 0.0
    finally:
        os.close(host)
    record = probe.exit()
    _measure(outcome, cage, (ordered, died, all_died))
    _judge(outcome, record, before, probe)
    return outcome


def _judge(outcome: Outcome, record: dict[str, Any], before: list[Found], probe: KeeperProbe) -> None:
    """Does the exit record say what happened, and what had to be killed for it?"""
    task = outcome.task
    if record["left"] or record["kept"] or record["keeper_fault"]:
        outcome.faults.append(f"left {record['left']}, kept {record['kept']}, fault {record['keeper_fault']}")
    named = {found["pid"] for found in record["survivors"]}
    main = json.loads((probe.dir / "start.json").read_text())["pid"]
    if task.ending == "KILL" and task.kind not in GONE:
        unnamed = [each.pid for each in before if each.pid not in named and each.pid != main]
        outcome.unnamed = unnamed[record["unlisted"] :]
    elif not named and (task.ending != "TERM" or task.kind in DEAF[:2]):
        outcome.unnamed = [0]


def _keeper_killed(task: Task, cage: Cage, probe: KeeperProbe, session: str) -> Outcome:
    """SIGKILL for the keeper: the kernel ends its CLI, and a sweep by marker or the cgroup ends the rest."""
    outcome = Outcome(task)
    host = os.pidfd_open(probe.start()["pid"])
    try:
        probe.said(b"up\n")
        ordered = time.monotonic()
        probe.process.kill()
        died = cage.death_of(host, PATIENCE_S)  # by the kernel alone: nothing else was asked yet
        if task.method == "cgroup":
            assert cage.cgroup and cgroups.kill(cage.cgroup)
            eventually(lambda: not cgroups.populated(str(cage.cgroup)), "the cgroup's death certificate")
        else:
            trio.run(lambda: sweep(_mark(session)))
        _, all_died = cage.last_death(host, MOMENT_S)
    finally:
        os.close(host)
    _measure(outcome, cage, (ordered, died, all_died))
    if died is None:
        outcome.faults.append("the CLI outlived its keeper")
    return outcome


def _measure(outcome: Outcome, cage: Cage, times: tuple[float, float | None, float | None]) -> None:
    ordered, died, all_died = times
    outcome.ms, outcome.host_ms = _ms(ordered, all_died), _ms(ordered, died)
    if not cage.empty():
        outcome.ms, outcome.missed = None, max(1, len(cage.living()))


def _ms(since: float, until: float | None) -> float | None:
    return None if until is None else (until - since) * 1000

"""Leftover processes of runs with a dead keeper, and runs of sessions that could not be loaded.

The cgroup and the marker in the environment identify a process. The daemon ends only processes of this state directory,
except processes that the orphan policy `keep` has released, while a backend has this policy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Any

from clisup.errors import WorldError
from clisup.host.locks import lock_holder
from clisup.host.process import cgroups
from clisup.host.process.markers import RunMarker, state_id
from clisup.host.process.tree import marked_runs, sweep
from clisup.model.structs import JsonObject
from clisup.store.session_dir import RunDir, SessionDir

Run = tuple[str, int]


async def end_leftovers(
    state_dir: str, home: cgroups.CgroupHome, supervised: Container[Run], released: Callable[[JsonObject | None], bool]
) -> list[dict[str, Any]]:
    """End leftover processes, and return `{session, run, pid, comm}` of each.

    `supervised` runs name what they leave, but for those with an exit record: a process of the CLI can write one. `released`
    tells of an exit record whether its run has released processes on purpose.
    """
    ended: list[dict[str, Any]] = []
    state = state_id(state_dir)
    for session_id, number in sorted({*home.leftovers(state), *marked_runs(state)}):
        if not _dead(state_dir, session_id, number, (session_id, number) in supervised, released):
            continue
        mark = RunMarker(session_id, number, state)
        cgroup = home.of(mark)
        killed = await sweep(mark, cgroup=cgroup)
        ended += [{"session": session_id, "run": number, **process} for process in killed]
        if cgroup is not None:
            cgroups.remove(cgroup)
    return ended


async def end_unsupervised(state_dir: str, session_id: str) -> list[int]:
    """End the runs of a session that could not be loaded, keepers first, and return the numbers of the runs.

    No timer, limit or client would apply to such a run. The output stays in the spools.
    """
    directory = SessionDir(state_dir, session_id)
    ended = []
    for number in directory.run_numbers():
        if keeper_of(directory.run(number)) is not None:
            await end_run(directory.run(number))
            ended.append(number)
    return ended


async def end_run(run: RunDir) -> None:
    """End an unsupervised run: the keeper first, then the rest of the process tree."""
    await sweep(run.mark(), keeper=keeper_of(run), cgroup=_cgroup_of(run))


def keeper_of(run: RunDir) -> int | None:
    """Return the keeper that holds the run's lock, or None. Raises `OSError`, as for want of a descriptor.

    Something else in the place of the lock counts as no keeper: a tool has put it there.
    """
    try:
        return lock_holder(run.lock)
    except PermissionError:
        return None


def _cgroup_of(run: RunDir) -> str | None:
    try:
        return run.cgroup()
    except WorldError:
        return None


def _dead(
    state_dir: str, session_id: str, number: int, supervised: bool, released: Callable[[JsonObject | None], bool]
) -> bool:
    """Tell whether a run of this state directory has no keeper, will name no survivors, and has released no process."""
    run = SessionDir(state_dir, session_id).run(number)
    if not os.path.isdir(run.path) or keeper_of(run) is not None:
        return False
    try:
        record = run.exit_record()
        return not released(record) and not (supervised and record is None)
    except WorldError:
        return False  # unknown for now: the next start looks again

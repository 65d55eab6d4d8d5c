"""Life of a keeper process, from its launch spec on stdin to its exit status.

The keeper promises four things. Each byte of the CLI's output is in `out.spool` or `err.spool` once and in order.
`exit.json` tells how the CLI ended. No process of the CLI's tree is left unless the spec says so. The CLI dies if the
keeper is killed.

Exit status: 0 the run is over and recorded (a failed spawn too), 75 the run belongs or belonged to another keeper,
65 the spec is invalid, 74 the run directory cannot be written. One JSON line on stdout says `ready` or the `error`.

The process has one thread. PDEATHSIG belongs to the thread that forked, and only a process with one thread forks safely.
"""

from __future__ import annotations

import errno
import json
import os
import resource
from contextlib import suppress
from typing import Any

from clisup.keeper.child import SpawnFailed
from clisup.keeper.helper import guard_helper
from clisup.keeper.keeper import Keeper
from clisup.keeper.loop import KeeperLoop
from clisup.keeper.run_dir import RunDirectory, StartRefused
from clisup.keeper.spec import InvalidMessage, RunSpec, parse_spec
from clisup.keeper.system import (
    PR_SET_DUMPABLE,
    UNLIMITED,
    close_descriptors,
    prctl,
    set_process_name,
    write_all,
)
from clisup.keeper.zygote import fork_keepers

SPEC_MAX = 80 * 1024 * 1024  # the spec carries the first prompt
# Soft limits at the start of a CLI, each cut to the hard limit. 1024 files is the limit of a login shell and of select();
# node, bun and Go raise it by themselves. Core files would hold secrets. The rest removes the limits of a parent.
SOFT_LIMITS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_NOFILE, 1024),
    (resource.RLIMIT_STACK, 8 * 1024 * 1024),
    (resource.RLIMIT_FSIZE, UNLIMITED),
    (resource.RLIMIT_CPU, UNLIMITED),
    (resource.RLIMIT_DATA, UNLIMITED),
    (resource.RLIMIT_AS, UNLIMITED),
)


def main(arguments: list[str]) -> int:
    """Run a keeper, with the argument `helper` the guard of a helper, and with `fork` the zygote, which forks both.

    Return the exit status.
    """
    role = fork_keepers() if arguments == ["fork"] else "helper" if arguments == ["helper"] else "keeper"
    if not role:
        return 0
    reset_process()
    if role == "helper":
        return guard_helper()
    try:
        spec = read_spec()
        os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
        run = RunDirectory(spec.run_dir)
        run.lock()
        keep(spec, run)
    except StartRefused as refusal:
        answer(refusal.answer)
        return refusal.status
    return 0


def reset_process() -> None:
    """Reset the state from the parent: descriptors, limits (the CLI inherits the limits), umask, session."""
    close_descriptors(3)
    with suppress(OSError):
        set_process_name("clisup-keeper")
        prctl(PR_SET_DUMPABLE, 0)  # a tool of the same user must not trace the keeper, which writes the record
    for which, wanted in SOFT_LIMITS:
        hard = resource.getrlimit(which)[1]
        soft = hard if wanted == UNLIMITED else wanted if hard == UNLIMITED else min(hard, wanted)
        with suppress(OSError, ValueError):
            resource.setrlimit(which, (soft, 0 if wanted == 0 else hard))
    os.umask(0o077)
    with suppress(OSError):
        os.setsid()


def read_spec() -> RunSpec:
    """Read the launch spec from stdin, up to EOF. Raises `StartRefused`."""
    with open(0, "rb", closefd=False) as file:
        data = file.read(SPEC_MAX)
    try:
        return parse_spec(data)
    except InvalidMessage as error:
        raise StartRefused(65, kind="bad_spec", error=str(error)) from None


def keep(spec: RunSpec, run: RunDirectory) -> None:
    """Keep one run from the start record to the exit record. After any error kill the tree and try to write a record."""
    keeper = Keeper(spec, run)
    try:
        loop = KeeperLoop(keeper)
        keeper.prepare()
    except OSError as error:
        why = os.strerror(error.errno or errno.EIO)
        raise StartRefused(
            74, kind="storage_failed", errno=error.errno, error=f"cannot prepare the run: {why}"
        ) from None
    try:
        answer(keeper.start())
        loop.run()
    except SpawnFailed as failure:
        keeper.record_failed_spawn(failure)
        record = failure.record
        answer({"error": record["message"], "kind": "spawn_failed", "errno": record["errno"], "stage": record["stage"]})
    except Exception as error:  # a bug of the keeper, or an exhausted resource: the run must still get its record
        fault = f"{type(error).__name__} in {_place_of(error)}"
        keeper.record_fault(fault)
        answer({"error": f"cannot go on: {fault}", "kind": "keeper_fault"})  # goes nowhere once `ready` was sent
    run.unlink("ctl.sock")


def _place_of(error: Exception) -> str:
    """Return the file and line of an error, without any value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)} line {trace.tb_lineno}" if trace else "?"


def answer(line: dict[str, Any]) -> None:
    """Write the only line to stdout, then close stdout. The daemon may be dead already. Descriptor 1 stays taken."""
    with suppress(OSError):
        write_all(1, json.dumps(line).encode() + b"\n")
    os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 1)

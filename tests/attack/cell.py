"""Cell of a part: the command line under which it has no rights of root, few processes, and files that vanish with it.

As root the part gets namespaces of its own for processes and mounts, and a user that nobody else is. Elsewhere the part
runs as it is, and its attacks count what they make.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["command", "confined", "inside"]

ROOT = Path(__file__).parents[2]
FIRST_UID = 200_000
PROCESSES = 1500
_INSIDE = "CLISUP_ATTACK_CELL"
TMP_BYTES = "6g"
SMALL = "/tmp/small"
"""File system of a few MiB, for the attacks on a full disk."""
_BEGIN = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
    "--propagation",
    "private",
    "sh",
    "-euc",
]
_REAPING = "& wait $!"
"""The shell stays as the first process of the cell, and reaps what the attacks orphan."""


@functools.cache
def confined() -> bool:
    """Tell whether this user can make the cells."""
    return os.geteuid() == 0 and subprocess.run([*_BEGIN, "true"], capture_output=True, check=False).returncode == 0


def inside() -> bool:
    """Tell whether this process is in a cell."""
    return bool(os.environ.get(_INSIDE))


def command(argv: list[str], home: str, *, as_root: bool = False) -> list[str]:
    """Return the command line that runs `argv` in a cell. Its HOME is made there."""
    if not confined():
        os.makedirs(home, exist_ok=True)
        return argv
    uid = FIRST_UID + random.randrange(1_000_000)
    lines = ["mkdir -m 700 /run/attack-kept 2>/dev/null || true", "mount -t tmpfs none /run/attack-kept"]
    opened = sorted({(str(closed), str(kept)) for kept in _needed() for closed in _closed_way(kept)})
    lines += [f"mkdir -p /run/attack-kept{kept}; mount --bind {kept} /run/attack-kept{kept}" for _, kept in opened]
    lines += [f"mount -t tmpfs -o mode=755 none {closed}" for closed in sorted({closed for closed, _ in opened})]
    lines += [f"mkdir -p {kept}; mount --bind /run/attack-kept{kept} {kept}" for _, kept in opened]
    lines += [
        f"mount -t tmpfs -o mode=1777,size={TMP_BYTES} none /tmp",
        f"mkdir {SMALL} && mount -t tmpfs -o mode=700,size=24m none {SMALL}",
        f"mkdir -m 700 {home}; export {_INSIDE}=1",
    ]
    if as_root:
        return [*_BEGIN, "\n".join([*lines, f'"$@" {_REAPING}']), "cell", *argv]
    rights = f"--reuid {uid} --regid {uid} --clear-groups"
    lines += [
        f"chown {uid}:{uid} {home} {SMALL}",
        f'prlimit --nproc={PROCESSES}:{PROCESSES} setpriv {rights} "$@" {_REAPING}',
    ]
    return [*_BEGIN, "\n".join(lines), "cell", *argv]


def _needed() -> list[Path]:
    """Return the directories that the part reads: Python, the environment, the checkout."""
    return [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT]


def _closed_way(path: Path) -> Iterator[Path]:
    """Yield the first directory on the way that another user cannot enter."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & 0o001:
            yield parent
            return

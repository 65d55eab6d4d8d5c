"""`clisup` as an operator runs it, against a harness's daemon or the files that it left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import Harness

import clisup

BOUND_S = 60.0
Done = subprocess.CompletedProcess[str]


def environment(daemon: Harness, **more: str) -> dict[str, str]:
    own = {
        "CLISUP_SOCKET": daemon.socket,
        "CLISUP_STATE_DIR": str(daemon.state),
        "CLISUP_CONFIG": str(daemon.config),
        "PYTHONPATH": str(Path(clisup.__file__).parents[1]),
        "HOME": str(daemon.root / "home"),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
    }
    return own | more


def run(daemon: Harness, *args: str, **options: Any) -> Done:
    """Run the command to its end."""
    return subprocess.run([sys.executable, "-m", "clisup", *args], capture_output=True, text=True, check=False,
                          env=environment(daemon), timeout=BOUND_S, stdin=subprocess.DEVNULL, **options)  # fmt: skip


def begin(daemon: Harness, *args: str) -> subprocess.Popen[str]:
    """Start the command; the caller ends it."""
    return subprocess.Popen([sys.executable, "-m", "clisup", *args], env=environment(daemon), text=True, bufsize=1,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

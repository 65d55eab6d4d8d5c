"""The two C programs of the benchmark, built with the machine's own compiler into a directory of the run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["build"]

SOURCES = Path(__file__).parent / "native"


def build(name: str, into: Path) -> Path:
    """The program's path. Exits with a word where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("cannot measure, because there is no C compiler; install gcc")
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", into / name, SOURCES / f"{name}.c"], check=True)
    return into / name

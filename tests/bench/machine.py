"""Where a run was made: a figure means nothing without it."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import clisup

__all__ = ["machine", "sentence"]

PACKAGES = ("trio", "pydantic", "msgspec", "orjson")


def machine() -> dict[str, Any]:
    """Processor, kernel, versions, the load now."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "clisup": clisup.__version__,
        "packages": {name: version(name) for name in PACKAGES},
        "load_before": round(os.getloadavg()[0], 2),
    }


def sentence(facts: dict[str, Any]) -> str:
    """A paragraph of Markdown."""
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    return (
        f"{facts['date']}, {facts['cores']} cores ({facts['processor']}), {facts['memory_gib']} GiB, kernel {facts['kernel']},\n"
        f"Python {facts['python']}, {packages}, clisup {facts['clisup']};\n"
        f"load {facts['load_before']} before and {facts['load_after']} after, {facts['seconds']} s.\n{_stolen(facts.get('stolen'))}"
    ).rstrip()


def _stolen(facts: dict[str, Any] | None) -> str:
    if facts is None:
        return ""
    return (
        f"Stolen time: {facts['median'] * 100:.1f} % in the median of the rounds, {facts['most'] * 100:.1f} % at most; "
        f"{facts['aside']} rounds were repeated."
    )

"""Fixtures: `keep` starts keepers in fresh run directories and leaves none behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from keeper_probe import KeeperProbe


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(number): a line of the fault catalogue that the test proves")


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., KeeperProbe]]:
    """`keep(argv, **spec)` or `keep("shell text", **spec)`."""
    probes: list[KeeperProbe] = []

    def start(command: str | list[str], run: str = "", **spec: object) -> KeeperProbe:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        probes.append(KeeperProbe(tmp_path / (run or f"run{len(probes)}"), argv, **spec))  # type: ignore[arg-type]
        return probes[-1]

    yield start
    for probe in probes:
        probe.close()

"""Fixtures: a fake daemon on a socket of the test's own, and real ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))
from fake_daemon import FakeDaemon
from serving import serve

__all__ = ["daemon", "serve"]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "d.sock")
    yield fake
    fake.close()

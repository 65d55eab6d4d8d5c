"""Fixtures: `serve(...)` starts daemons with configurations of their own, `daemon` is one that a module shares.

Daemons are forked by a zygote; where a test or a module is marked `cold`, those of `serve` are whole `python -m clisup serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import Harness
from serving import serve

__all__ = ["daemon", "serve"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    """One for all tests of a module that do it no harm."""
    harness = Harness()
    harness.start()
    yield harness
    harness.close()

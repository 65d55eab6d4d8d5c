"""Fixtures: `serve(...)` starts daemons with configurations of their own, `daemon` is one that a module shares,
`terminal(...)` runs commands of it on terminals.

Daemons are forked by a zygote; where a test or a module is marked `cold`, those of `serve` are whole `python -m clisup serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import Harness
from pty_terminal import Terminal
from serving import serve

__all__ = ["daemon", "serve", "terminal"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    """One for all tests of a module that do it no harm."""
    harness = Harness()
    harness.start()
    yield harness
    harness.close()


@pytest.fixture
def terminal(daemon: Harness) -> Iterator[Callable[..., Terminal]]:
    """Return a function that runs a command on a terminal of its own."""
    made: list[Terminal] = []

    def start(*args: str, **options: Any) -> Terminal:
        made.append(Terminal(daemon, *args, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()

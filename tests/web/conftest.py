"""Fixtures: a real daemon with `clisup web` beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))
from harness import Harness
from serving import serve
from web_process import Pages

__all__ = ["pages", "serve"]


@pytest.fixture
def pages(serve: Callable[..., Harness]) -> Iterator[Callable[..., Pages]]:
    """`pages(timeouts={...})` starts a daemon and its pages."""
    made: list[Pages] = []

    def make(**tables: Any) -> Pages:
        made.append(Pages(serve(**tables)))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()

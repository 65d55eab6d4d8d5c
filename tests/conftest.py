"""The order of the files: those that wait for real processes first, so that no long one is alone at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
FIRST = ("chaos", "daemon", "client", "cli", "soak", "systemd", "zoo", "fuzz", "keeper", "demo", "host")
"""Directories. Workers take whole files, in this order (`--no-loadscope-reorder`)."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    directory = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return FIRST.index(directory) if directory in FIRST else len(FIRST)

"""Two suites out of one tree: what takes its time has the mark `long`. And their order: files that wait for real processes come
first, so that no long one is alone at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, and a busy machine is slow at making values, too.
settings.register_profile("clisup", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clisup")

HERE = Path(__file__).parent
FIRST = ("chaos", "daemon", "client", "cli", "soak", "systemd", "zoo", "fuzz", "keeper", "demo", "host", "store")
"""Directories. Workers take whole files, in this order (`--no-loadscope-reorder`)."""


LONG = ("chaos", "daemon", "soak", "systemd", "zoo", "fuzz", "crowd", "bench", "pictures", "docs")
"""Directories of whole daemons, lanes in small, and pages whose every command is run: `make test-long`."""
LONG_FILES = (
    "test_mcp_bridge.py",
    "test_long_line.py",
    "test_conversation_policies.py",
    "_real.py",
    "_crash.py",
    "_daemon.py",
    "_examples.py",
    "llm_docs.py",
    "test_tools_of_a_cli.py",
    "test_serving.py",
)
"""Ends of names of files elsewhere that start one whole daemon after the other, or try very many inputs."""
SHORT = ("test_turns.py",)
"""Files of those directories that are quick all the same: `make test` sees a whole daemon, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Before any `-m` is looked at."""
    inside = item.path.relative_to(HERE).parts if item.path.is_relative_to(HERE) else ("",)
    if (inside[0] in LONG and inside[-1] not in SHORT) or inside[-1].endswith(LONG_FILES):
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    directory = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return FIRST.index(directory) if directory in FIRST else len(FIRST)

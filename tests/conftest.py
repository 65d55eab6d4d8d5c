"""Division of the tests into two suites, and the order of their files.

A test is `long` if it starts whole daemons or workers, runs the commands of the docs, or tries very many inputs.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, and a busy machine is slow at making values, too.
settings.register_profile("clisup", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clisup")

HERE = Path(__file__).parent
FIRST = ("chaos", "daemon", "worker", "client", "cli", "soak", "systemd", "zoo", "fuzz", "keeper", "demo", "host", "store",
         "llm", "test_architecture.py", "test_packaging.py", "wire", "model", "backends")  # fmt: skip
"""Directories and files. Workers take whole files, in this order (`--no-loadscope-reorder`): the longest ones first, so that
none of them runs alone at the end.
"""


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
    "test_worker_answers.py",
    "test_start_command.py",
    "test_setup_command.py",
)
"""Ends of names of files elsewhere that start one daemon or worker after the other, or try very many inputs."""
LONG_FIXTURE = "serve"
"""Fixture that starts a real daemon: tests elsewhere that use it are `long`, too."""
SHORT = ("test_turns.py",)
"""Files of those directories that are quick all the same: `make test` sees a whole daemon, too."""


def _is_long(path: Path) -> bool:
    inside = path.relative_to(HERE).parts if path.is_relative_to(HERE) else ("",)
    return (inside[0] in LONG and inside[-1] not in SHORT) or inside[-1].endswith(LONG_FILES)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that `-m` deselects as a whole. Each of the three workers imports every file that is not ignored."""
    if collection_path.suffix != ".py":
        return None
    expression = config.getoption("markexpr")
    e2e = collection_path.is_relative_to(HERE / "e2e") and "not e2e" in expression
    return (e2e or ("not long" in expression and _is_long(collection_path))) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and keep it away from what is collected: it would walk through millions of objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark long tests before any `-m` is looked at."""
    fixtures = () if item.path.name in SHORT else getattr(item, "fixturenames", ())
    if _is_long(item.path) or LONG_FIXTURE in fixtures:
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    directory = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    return FIRST.index(directory) if directory in FIRST else len(FIRST)

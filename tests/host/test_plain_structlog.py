"""What a daemon needs only later, or never, is no part of its start."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = ("rich", "psutil", "click", "textual", "prometheus_client", "opentelemetry", "jsonschema")
OWN_LATER = (
    "clisup.daemon.doctor",
    "clisup.daemon.metrics",
    "clisup.daemon.tracing",
    "clisup.rpc.openrpc",
    "clisup.core.env_names",
)
START = """
import sys
from clisup.host.plain_structlog import import_structlog
import_structlog()
import clisup.daemon.app, clisup.daemon.backends, clisup.host.config_file, clisup.host.credentials
from clisup.core.config import parse_config
clisup.daemon.backends.Backends(parse_config({}), {})
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_start_loads_nothing_that_waits_for_its_first_use() -> None:
    loaded = set(run(START + "print(*sys.modules)").split())
    assert "structlog" in loaded and not loaded & {*LATER, *OWN_LATER}


def test_whoever_wants_rich_afterwards_has_it() -> None:
    assert run(START + "import rich; print(rich.__name__)") == "rich\n"


def test_a_log_for_people_is_drawn_without_rich() -> None:
    code = START + (
        "import structlog\n"
        "draw = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)\n"
        "print(draw(None, '', {'event': 'ready', 'sessions': 3}), 'rich' in sys.modules)"
    )
    assert run(code).split() == ["ready", "sessions=3", "False"]


@pytest.mark.parametrize("name", ["rich", "better_exceptions"])
def test_what_is_loaded_already_stays(name: str) -> None:
    code = f"import sys, types; sys.modules[{name!r}] = there = types.ModuleType({name!r}); there.__path__ = []\n"
    assert run(code + START + f"print(sys.modules[{name!r}] is there)") == "True\n"

"""What a daemon needs only later, or never, is no part of its start; and whoever wants it has it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clisup.host.process.carrying import clean_environment

LATER = ("rich", "psutil", "click", "textual", "prometheus_client", "opentelemetry", "jsonschema")
OWN_LATER = (
    "clisup.daemon.ops.doctor",
    "clisup.daemon.ops.exposition",
    "clisup.daemon.ops.tracing",
    "clisup.wire.openrpc",
)
STDLIB_LATER = ("asyncio", "ssl", "_ssl", "_hashlib", "importlib.metadata", "email", "zipfile", "difflib")
LEAN = "import sys\nfrom clisup.host.process.lean_imports import import_lean\nimport_lean()\n"
START = f"""{LEAN}
import clisup.daemon.app, clisup.daemon.backends, clisup.host.config_file, clisup.host.config_file
from clisup.config.model import parse_config
clisup.daemon.backends.Backends(parse_config({{}}), {{}})
"""
HASHES = """
made = {name: hashlib.new(name, b"x") for name in sorted(hashlib.algorithms_guaranteed)}
print([made.hexdigest(32) if name.startswith("shake") else made.hexdigest() for name, made in made.items()])
"""


def run(code: str) -> str:
    env = clean_environment(os.environ, -1)  # what a daemon has
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.stdout


def test_a_start_loads_nothing_that_waits_for_its_first_use() -> None:
    loaded = set(run(START + "print(*sys.modules)").split())
    assert {"structlog", "trio", "pydantic"} <= loaded
    assert not loaded & {*LATER, *OWN_LATER, *STDLIB_LATER}


def test_nothing_of_openssl_is_in_the_process() -> None:
    maps = run(START + "print(open('/proc/self/maps').read())")
    assert "_pydantic_core" in maps and "libcrypto" not in maps and "libssl" not in maps


@pytest.mark.parametrize("name", ["rich", "asyncio", "ssl", "importlib.metadata"])
def test_whoever_wants_it_afterwards_has_the_real_one(name: str) -> None:
    assert run(LEAN + f"import {name}; print(sys.modules[{name!r}].__spec__.name)") == f"{name}\n"


def test_asyncio_is_there_for_who_logs_with_it() -> None:
    code = "import structlog, asyncio; asyncio.run(structlog.make_filtering_bound_logger(0)(structlog.PrintLogger(), [], {}).ainfo('x'))"
    plain = "def last(_logger, _name, record): return record['event']\n"
    assert run(LEAN + plain + code.replace("[]", "[last]")) == "x\n"


def test_tls_is_there_for_who_speaks_it_over_trio() -> None:
    code = (
        "import trio, trio.testing, ssl\n"
        "stream, _ = trio.testing.memory_stream_pair()\n"
        "print(type(trio.SSLStream(stream, ssl.create_default_context(), server_hostname='x')).__name__)"
    )
    assert run(LEAN + code) == "SSLStream\n"


def test_plug_ins_of_pydantic_are_found_where_they_are_wanted() -> None:
    code = "from pydantic.plugin import _loader; print(list(_loader.entry_points(group='no such group')))"
    assert run(LEAN + code) == "[]\n"


def test_hashes_are_the_same_without_openssl() -> None:
    code = f"import hashlib, hmac; print('_hashlib' in sys.modules, hmac.new(b'k', b'x', 'sha256').hexdigest()){HASHES}"
    lean, usual = run(LEAN + code), run("import sys\n" + code)
    assert lean.startswith("False") and usual.startswith("True")
    assert lean.split()[1:] == usual.split()[1:]


def test_a_python_that_leaves_hashes_to_openssl_keeps_it() -> None:
    """Fedora's has no `_md5`, and says so on stderr where `hashlib` does without OpenSSL."""
    code = (
        "import clisup.host.process.lean_imports as lean; lean.find_spec = lambda name: None if name == '_md5' else 1\n"
    )
    assert run(code + LEAN + "import hashlib; print('_hashlib' in sys.modules)") == "True\n"


@pytest.mark.parametrize("asking", ["from asyncio import sleep", "import asyncio; asyncio.sleep"])
def test_a_package_that_asks_while_it_is_imported_is_answered(asking: str) -> None:
    code = (
        "import sys, types, clisup.host.process.lean_imports as lean\n"
        "real = lean.import_module\n"
        "def importing(name):\n"
        f"    if name == 'structlog': exec({asking!r}, {{}})\n"
        "    return real(name)\n"
        "lean.import_module = importing\n"
        "lean.import_lean()\n"
        "import asyncio, structlog; print(asyncio.sleep.__module__)"
    )
    assert run(code) == "asyncio.tasks\n"


def test_a_log_for_people_is_drawn_without_rich() -> None:
    code = START + (
        "import structlog\n"
        "draw = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)\n"
        "print(draw(None, '', {'event': 'ready', 'sessions': 3}), 'rich' in sys.modules)"
    )
    assert run(code).split() == ["ready", "sessions=3", "False"]


@pytest.mark.parametrize("name", ["rich", "better_exceptions", "asyncio", "ssl"])
def test_what_is_loaded_already_stays(name: str) -> None:
    code = f"import sys, types; sys.modules[{name!r}] = there = types.ModuleType({name!r}); there.__path__ = []\n"
    assert run(code + LEAN + f"print(sys.modules[{name!r}] is there)") == "True\n"

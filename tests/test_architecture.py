"""Who may import whom, who may touch what, and how long a file may be: the architecture, held by a machine."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "clisup"
STDLIB = frozenset(sys.stdlib_module_names)

# -- the contract -----------------------------------------------------------------------------------------------------

RULES = {"clisup.model", "clisup.policy", "clisup.ops", "clisup.config", "clisup.errors"}
SHARED = {"clisup", "clisup.errors", "clisup.locations"}
MAY_IMPORT: dict[str, set[str]] = {
    # part of clisup -> parts of clisup that it may import, besides itself
    "clisup.errors": set(),
    "clisup.locations": {"clisup.errors"},
    "clisup.model": {"clisup.errors"},
    "clisup.policy": {"clisup.errors", "clisup.model"},
    "clisup.ops": {"clisup.errors", "clisup.model", "clisup.policy"},
    "clisup.config": {"clisup.errors", "clisup.model", "clisup.policy"},
    "clisup.backends": RULES | {"clisup"},  # its version alone, which a protocol asks for
    "clisup.wire": RULES | {"clisup"},  # its version alone, which the OpenRPC document tells
    "clisup.host": RULES | SHARED | {"clisup.keeper"},  # the keeper's start file is only found, never run here
    "clisup.store": RULES | SHARED | {"clisup.host"},
    "clisup.daemon": RULES | SHARED | {"clisup.host", "clisup.store", "clisup.backends", "clisup.wire"},
    # The composition root of the commands that work without a daemon; of the daemon it takes the configured backends and the places.
    "clisup.recordings": RULES
    | SHARED
    | {"clisup.host", "clisup.store", "clisup.backends", "clisup.daemon.backends", "clisup.daemon.start"},
    # The composition root of `clisup install`: it works where no daemon runs, and before one ever did.
    "clisup.installing": RULES | SHARED | {"clisup.host"},
    # The composition root of a start in the background: the daemon's places and configuration, its process, and its first answer.
    "clisup.starting": RULES | SHARED | {"clisup.host", "clisup.client", "clisup.daemon.start"},
    # As recordings: what a command collects, with a daemon or in the place of one.
    "clisup.bundle": RULES
    | SHARED
    | {
        "clisup.host",
        "clisup.store",
        "clisup.client",
        "clisup.daemon.ops.offline",
        "clisup.daemon.backends",
        "clisup.daemon.start",
    }
    | {"clisup.recordings"},
    # Boxes: their list, and the way to each. The clients load it when a box is named. And the rules of copies, jobs and holds of
    # a fleet, with the engine that they stand on.
    # The agent reads the configuration, and knows the table of methods.
    "clisup.fleet": SHARED
    | {"clisup.host", "clisup.model", "clisup.policy", "clisup.config", "clisup.wire", "clisup.ops.doctor"},
    # Typed events and results are the models themselves, and an image is what core says; what `clisup status` loads of the
    # client is held in tests/client.
    "clisup.client": SHARED
    | {"clisup.model.events", "clisup.model.prompts.content", "clisup.wire.results", "clisup.fleet"},
    # Sockets, addresses and the link to the daemon of the HTTP servers: the pages and the gateway.
    "clisup.http": SHARED | {"clisup.client", "clisup.host.log_file"},
    # Servers of other protocols, each a client of the daemon. They frame JSON-RPC as the daemon does. The gateway's requests are
    # those of the model layer, whose messages and readers of turns it takes.
    "clisup.doors": SHARED
    | {"clisup.client", "clisup.wire.jsonrpc", "clisup.wire.results", "clisup.host.log_file"}
    | {
        "clisup.http",
        "clisup.llm",
        "clisup.model.usage",
        "clisup.policy.vendor_terms",
        "clisup.policy.approval_options",
    }
    | {"clisup.host.files", "clisup.host.config_file", "clisup.host.safe_paths"},
    # The model layer: a client of the daemon, and nothing else.
    # It reads JSON in answers as the workers do.
    "clisup.llm": SHARED
    | {"clisup.client", "clisup.model.events", "clisup.model.usage", "clisup.stream_json.json_texts"},
    "clisup.keeper": set(),
    "clisup.bridge": set(),
    # What the demo CLI and the workers write alike.
    "clisup.stream_json": set(),
    "clisup.demo": {"clisup.stream_json"},
    "clisup.worker": {"clisup.stream_json"},
    # `clisup config` shows the table of keys, and what a daemon would make of a file, without one.
    "clisup.cli": SHARED
    | {
        "clisup.client",
        "clisup.fleet",
        "clisup.bridge",  # `clisup mcp-bridge` is its main
        "clisup.doors",
        "clisup.http.server",
        "clisup.daemon.start",
        "clisup.daemon.ops.offline",
        "clisup.daemon.ops.status_offline",
        "clisup.host.process.carrying",  # what a daemon does before it loads anything else
        "clisup.host.locks",  # a command that finds no daemon asks who holds its state directory; status_offline is slower to load
        "clisup.config.keys",
        "clisup.config.edit",  # `clisup setup` adds to the file, and loads none of the model for that
        "clisup.policy.approval_options",
        "clisup.policy.form_schema",  # a form and its check read a schema alike
        "clisup.policy.secrets.plain_text",
        "clisup.recordings",
        "clisup.installing",
        "clisup.starting",
        "clisup.bundle",
        "clisup.llm.workflow.trace",  # `clisup workflow show` reads a file that the model layer wrote; no daemon knows of it
    },
    # The pages and their command, above the command line, which finds the command by its name. They draw events and approvals as
    # the terminal's views and `clisup export` do.
    "clisup.web": SHARED
    | {
        "clisup.client",
        "clisup.http",
        "clisup.host.files",
        "clisup.host.process.listing",  # the live processes of a session, of this machine alone
        "clisup.policy.secrets.redact",  # their command lines
        "clisup.host.config_file",  # the table [web]
        "clisup.model.usage",
        "clisup.policy.rate_limit",
        "clisup.cli.daemon_start",
        "clisup.cli.failure",
        "clisup.cli.options",
        "clisup.cli.export",
        "clisup.cli.views",
        "clisup.cli.status.columns",
        "clisup.cli.status.command",  # a budget in words
        "clisup.cli.top.model",
        "clisup.cli.fleet.members",
        "clisup.fleet.book",
    },
    "clisup.__main__": {"clisup.cli"},
    "clisup": set(),
}
MODEL_LAYER: dict[str, set[str]] = {
    # what lies above the seam of the model layer (llm/chat.py) -> what else of it each may import; all else of clisup.llm: nothing of it
    "clisup.llm.conversation": set(),
    "clisup.llm.signatures": set(),
    "clisup.llm.workflow": {"clisup.llm.signatures"},
}
WHOLE_MODEL_LAYER = {"clisup.llm", "clisup.llm.blocking"}  # they give all of it: its names, and their blocking twins
THIRD_PARTY: dict[str, set[str]] = {
    # part of clisup -> what it may import from outside the standard library; what is not here: nothing
    "clisup.model": {"pydantic", "pydantic_core", "msgspec"},
    "clisup.policy": {"pydantic", "pydantic_core", "msgspec"},
    "clisup.ops": {"pydantic", "pydantic_core", "msgspec"},
    "clisup.config": {"pydantic", "pydantic_core", "msgspec"},
    "clisup.backends": {"pydantic", "msgspec"},
    "clisup.wire": {"pydantic", "pydantic_core"},
    "clisup.wire.jsonrpc": {"msgspec"},  # of a frame that is not read, the id is, and nothing else is made
    "clisup.host": {"trio", "psutil"},
    "clisup.store.session_dir": {"msgspec"},  # prompts may be long
    "clisup.store.records": {"msgspec"},  # records of a run have fixed types
    "clisup.store.drift_store": {"msgspec"},
    "clisup.host.process.keepers": {"msgspec"},  # each line of a CLI is told of in one message
    "clisup.host.otlp": {"opentelemetry", "requests"},  # the one file that knows it: an extra that need not be there
    "clisup.daemon": {"trio", "psutil", "pydantic", "msgspec"},  # msgspec for records made for each event
    "clisup.daemon.ops.exposition": {"prometheus_client"},
    "clisup.cli": {"click", "rich"},
    "clisup.cli.batch.command": {"trio"},
    "clisup.cli.batch.work": {"trio"},
    "clisup.cli.top.app": {"textual"},
    "clisup.cli.top.dialogs": {"textual"},
    "clisup.cli.top.panes": {"textual"},
    "clisup.http": {"trio", "starlette"},
    "clisup.http.connection": {"trio", "starlette", "hypercorn", "h11"},
    "clisup.http.connections": {"trio", "starlette", "hypercorn"},
    "clisup.web": {"trio", "starlette"},
    "clisup.web.command": {
        "click",
        "segno",
        "hypercorn",
        "jinja2",
        "http_ece",
        "py_vapid",
    },  # an extra, checked before the start
    "clisup.web.push.delivery": {"http_ece", "py_vapid", "cryptography"},
    "clisup.web.pages.site": {"jinja2"},
    "clisup.web.pages.approvals": {"markupsafe"},
    "clisup.web.pages.session": {"markupsafe"},
    "clisup.cli.commands.daemon": {"prometheus_client"},  # its parser, for --json
    "clisup.worker": {"trio"},
    "clisup.worker.apis.prices": {"genai_prices"},
    "clisup.worker.tools.mcp_servers": {"trio", "httpx2", "mcp"},
    "clisup.doors": {"trio"},
    "clisup.doors.acp.history": {"msgspec"},  # events are its structs
    "clisup.doors.gateway.app": {"starlette"},
    "clisup.doors.gateway.endpoint": {"trio", "starlette"},
    "clisup.doors.gateway.guard": {"starlette"},
    "clisup.doors.gateway.metrics": {"prometheus_client"},
    "clisup.doors.gateway.requests": {"msgspec"},
    "clisup.doors.gateway.openai_chat.request": {"msgspec"},
    "clisup.doors.gateway.openai_responses.request": {"msgspec"},
    "clisup.doors.gateway.anthropic_messages.request": {"msgspec"},
    "clisup.doors.mcp.agents": {"pydantic"},  # the tools' schemas
    "clisup.doors.mcp.news": {"pydantic"},
    "clisup.doors.mcp.server": {"trio", "mcp", "mcp_types"},
    "clisup.llm": {"trio", "pydantic", "pydantic_core", "jsonschema"},
    "clisup.llm.sessions.turn_reader": {"msgspec"},  # events are its structs
    "clisup.recordings": {"msgspec"},
    "clisup.fleet": {"msgspec"},
    "clisup.fleet.holds": {"pydantic"},
    "clisup.fleet.setup.keys": {"nkeys"},
    "clisup.fleet.nats_engine": {
        "nats",
        "nkeys",
    },  # the one file that knows the engine: an extra that need not be there
    "clisup.client.aio": {"trio"},
    "clisup.client.aio_connection": {"trio"},
    "clisup.client.aio_requests": {"trio"},
    "clisup.client.aio_session": {"trio"},
    "clisup.client.aio_tools": {"trio"},
    "clisup.client.answers": {"pydantic"},
    "clisup.client.events": {"msgspec"},
    "clisup.client.nurseries": {"trio"},
}
DAEMON_ROOMS = {
    "journal": set[str](),
    "runs": {"journal"},
    "limits": {"journal", "runs", "sessions.context"},
    "approvals": {"journal", "runs", "sessions.context"},
    "tools": {"journal", "runs", "sessions.context"},
    "worktrees": set(),
    "sessions": {"journal", "runs", "limits", "approvals", "tools", "worktrees", "ops.drift"},
    "ops": {"journal", "runs", "limits", "approvals", "tools", "worktrees", "sessions"},
    "notify": {"journal", "sessions"},
    "clients": {"journal", "runs", "limits", "approvals", "tools", "worktrees", "sessions", "ops"},
}
"""Folders of the daemon, lowest first: what each may import of the others. Files beside the folders are for all."""
PURE = ("clisup.model", "clisup.policy", "clisup.ops", "clisup.config", "clisup.backends", "clisup.wire")
PURE_FILES = {"clisup.fleet.chain", "clisup.fleet.jobs", "clisup.fleet.holds"}  # in rooms that are not
EFFECTS = frozenset(
    [
        "asyncio",
        "concurrent",
        "ctypes",
        "fcntl",
        "glob",
        "http",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "platform",
        "pty",
        "random",
        "resource",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "trio",
        "urllib",
    ]
)
PURE_FACTS = {
    # what a pure module may take from a module of effects all the same: facts and functions of their arguments alone
    "glob": {"escape"},
    "signal": {"Signals"},
    "sys": {"executable"},
}
CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "clock_gettime", "sleep", "localtime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
CLOCK_FILES = {"clisup.host.clock"}
# The daemon starts every program by `clisup.host.process.helpers`, which asks for a guard of these. It needs no spawn of its own.
SPAWN_FILES = {
    "clisup.host.process.keepers": "it starts the zygote, keepers and guards: clisup's own code, with an empty environment",
    "clisup.host.systemd.journal": "journalctl, for `clisup daemon log` without a daemon: no daemon loads it for that",
    "clisup.host.systemd.units": "systemctl, for `clisup install`: a command of the user",
}
DAEMONS_SIDE = (
    "clisup.daemon.",
    "clisup.host.",
    "clisup.store.",
    "clisup.backends.",
    "clisup.fleet.",
    "clisup.doors.",
    "clisup.web.",
)
SPAWNING = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput"},
    "trio": {"run_process"},
    "lowlevel": {"open_process"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "execvpe"}
    | {"spawnl", "spawnv", "spawnve", "spawnvp", "execl", "execle", "execlp"},
}
SPAWN_ELSEWHERE = {
    "clisup.keeper.child": "it starts the CLIs",
    "clisup.keeper.zygote": "it forks keepers",
    "clisup.fleet.setup.certificates": "openssl makes the certificates of a fleet",
    "clisup.fleet.setup.server": "nats-server says its version",
    "clisup.cli.fleet.found": "`clisup fleet node` becomes nats-server",
    "clisup.fleet.link": "the user's ssh is the connection to a box",
    "clisup.starting": "`clisup start` starts the daemon, which outlives the command",
    "clisup.cli.commands.manual": "man shows a page on a terminal",
    "clisup.cli.doors.mcp": "a CLI's own command adds the entry to its configuration",
    "clisup.cli.commands.demo": "the tour of `clisup demo` starts, kills and restarts a daemon of its own",
}
RE_EXECUTES = {"clisup.host.process.carrying": {"execve"}}  # the daemon itself, once, before it does anything else
ENVIRON_FILES = {"clisup.host.process.carrying"}
MAX_FUNCTION, MAX_FILE = 50, 500
LONG_FILES: dict[str, str] = {}
REPEATED_CLASSES = {
    # Public names of two layers that programs and schemas already use: the model layer's, and those of the protocol and its
    # clients. The set may only shrink.
    "Budget",
    "Envelope",
    "ImageBlock",
    "Retracted",
    "TextBlock",
    "ToolCall",
    "ToolResultBlock",
}
MAX_FILES = 20


# -- reading the source -----------------------------------------------------------------------------------------------


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """`clisup.model.events` -> `clisup.model`; a module of the package itself is its own part."""
        return ".".join(self.name.split(".")[:2])

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def module_name(path: Path) -> str:
    """Return the dotted name of a source file: `clisup/model/events.py` -> `clisup.model.events`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = {module_name(path) for path in FILES}


@cache
def all_modules() -> list[Module]:
    """Parse the package once. The collection of the tests, which each worker repeats, does not need the trees."""
    return [Module(module_name(path), path, ast.parse(path.read_text(), str(path))) for path in FILES]


class Import(NamedTuple):
    target: str
    node: ast.stmt

    @property
    def top(self) -> str:
        return self.target.split(".")[0]


def imports(module: Module) -> Iterator[Import]:
    """Every import, also inside functions and `if TYPE_CHECKING`: `from a import b` is `a.b` where that is a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.at(node)}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(full if full in NAMES else str(node.module), node)


def import_graph(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, every import counted."""
    return {m.name: {item.target for item in imports(m) if item.target in NAMES} - {m.name} for m in modules}


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules that all reach each other."""
    reached = {name: reachable(graph, name) for name in graph}
    rings = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return {ring for ring in rings if len(ring) > 1}


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that `start` imports, directly or through others."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def within(name: str, parts: set[str]) -> bool:
    """Is the module one of these parts, or below one? The package itself stands for its `__init__` alone."""
    return any(name == part or (part != "clisup" and name.startswith(part + ".")) for part in parts)


def attributes(module: Module) -> Iterator[tuple[str, str, ast.AST]]:
    """(owner, name, node) of every `owner.name` and of every `from owner import name`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            yield name, node.attr, node
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield str(node.module).split(".")[-1], alias.name, node


def used(module: Module, table: dict[str, set[str]]) -> list[str]:
    return [
        f"{module.at(node)}: {owner}.{name}"
        for owner, name, node in attributes(module)
        if name in table.get(owner, set())
    ]


def report(found: list[str], rule: str) -> None:
    assert not found, "\n".join([rule, *found])


# -- the rules --------------------------------------------------------------------------------------------------------


def test_every_part_of_the_package_has_a_place_in_the_contract() -> None:
    assert {module.part for module in all_modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    found = [
        f"{module.at(item.node)}: {module.name} imports {item.target}"
        for module in all_modules()
        if module.part == part
        for item in imports(module)
        if item.top == "clisup" and not within(item.target, MAY_IMPORT[part] | ({part} if part != "clisup" else set()))
    ]
    report(found, f"{part} may import of clisup only itself and {sorted(MAY_IMPORT[part])}:")


@pytest.mark.parametrize("room", DAEMON_ROOMS)
def test_a_folder_of_the_daemon_imports_only_what_lies_below_it(room: str) -> None:
    above = {f"clisup.daemon.{other}" for other in DAEMON_ROOMS if other != room}
    below = {f"clisup.daemon.{other}" for other in DAEMON_ROOMS[room]}
    found = [
        f"{module.at(item.node)}: {module.name} imports {item.target}"
        for module in all_modules()
        if within(module.name, {f"clisup.daemon.{room}"})
        for item in imports(module)
        if within(item.target, above) and not within(item.target, below)
    ]
    report(found, f"{room} may import of the daemon's folders only itself and {sorted(DAEMON_ROOMS[room])}:")
    assert {path.name for path in (PACKAGE / "daemon").iterdir() if (path / "__init__.py").exists()} == set(
        DAEMON_ROOMS
    )


def test_what_is_below_the_seam_of_the_model_layer_knows_nothing_of_what_is_above() -> None:
    found = [
        f"{module.at(item.node)}: {module.name} imports {item.target}"
        for module in all_modules()
        if module.part == "clisup.llm" and module.name not in WHOLE_MODEL_LAYER
        for item in imports(module)
        if within(item.target, set(MODEL_LAYER)) and not within(item.target, of_the_model_layer(module))
    ]
    report(found, "below the seam (llm/chat.py) nothing may import conversation, signatures or workflow:")


def of_the_model_layer(module: Module) -> set[str]:
    """What it may import of what lies above the seam."""
    return {part for own, more in MODEL_LAYER.items() if within(module.name, {own}) for part in {own, *more}}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_uses_only_the_libraries_that_it_may(part: str) -> None:
    found = [
        f"{module.at(item.node)}: {module.name} imports {item.target}"
        for module in all_modules()
        if module.part == part
        for item in imports(module)
        if item.top != "clisup" and item.top not in STDLIB
        if item.top not in THIRD_PARTY.get(module.part, set()) | THIRD_PARTY.get(module.name, set())
    ]
    report(found, f"{part} may use of third-party libraries only {sorted(THIRD_PARTY.get(part, set()))}:")


def is_pure(module: Module) -> bool:
    return module.part in PURE or module.name in PURE_FILES


def test_pure_packages_import_no_effects() -> None:
    found = [
        f"{module.at(item.node)}: {module.name} imports {item.target}"
        for module in all_modules()
        if is_pure(module)
        for item in imports(module)
        if item.top in EFFECTS - set(PURE_FACTS)
    ]
    found += [
        f"{module.at(node)}: {owner}.{name}"
        for module in all_modules()
        if is_pure(module)
        for owner, name, node in attributes(module)
        if owner in PURE_FACTS and name not in PURE_FACTS[owner]
    ]
    report(found, "rules, backends and wire are pure: what they need of the world comes as an argument:")


def test_pure_packages_open_no_file_and_ask_no_clock() -> None:
    found = [
        f"{module.at(node)}: {node.func.id}()"
        for module in all_modules()
        if is_pure(module)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "input", "print")
    ]
    found += [line for module in all_modules() if is_pure(module) for line in used(module, CLOCKS)]
    report(found, "rules, backends and wire are pure:")


def test_only_one_file_reads_the_clocks() -> None:
    checked = [m for m in all_modules() if m.part in ("clisup.daemon", "clisup.host") and m.name not in CLOCK_FILES]
    found = [line for module in checked for line in used(module, CLOCKS)]
    report(found, "in daemon and host, only host/clock.py reads a clock:")


def test_only_named_files_start_processes() -> None:
    exempt = set(SPAWN_FILES) | set(SPAWN_ELSEWHERE)
    found = [
        line
        for module in all_modules()
        if module.name not in exempt and module.part != "clisup.demo"
        for line in used(module, SPAWNING)
        if line.split(".")[-1] not in RE_EXECUTES.get(module.name, set())
    ]
    report(found, f"only {sorted(exempt)} start processes:")


def test_the_daemons_side_loads_no_module_that_starts_programs() -> None:
    """A program that the daemon starts is contained like a CLI, so every caller goes through one module."""
    allowed = {*SPAWN_FILES, *SPAWN_ELSEWHERE, "clisup.host.process.helpers"}
    found = [
        f"{module.at(imported.node)}: {imported.target}"
        for module in all_modules()
        if module.name.startswith(DAEMONS_SIDE) and module.name not in allowed
        for imported in imports(module)
        if imported.top in ("subprocess", "multiprocessing", "pty")
    ]
    report(found, "programs are started by clisup.host.process.helpers:")


def test_only_one_file_of_the_daemons_side_starts_threads() -> None:
    """A thread that the system does not start is `overloaded`, so every caller goes through one function."""
    checked = [
        m for m in all_modules() if m.part in ("clisup.daemon", "clisup.host") and m.name != "clisup.host.threads"
    ]
    wanted = {"trio": {"to_thread"}, "threading": {"Thread"}, "_thread": {"start_new_thread"}}
    report([line for m in checked for line in used(m, wanted)], "threads are started by clisup.host.threads:")


def test_only_one_file_of_the_daemons_side_reads_the_environment() -> None:
    side = (
        *PURE[:4],
        "clisup.backends",
        "clisup.wire",
        "clisup.host",
        "clisup.daemon",
        "clisup.errors",
        "clisup.locations",
    )
    found = [
        line
        for module in all_modules()
        if module.part in side and module.name not in ENVIRON_FILES
        for line in used(module, {"os": {"environ", "getenv", "environb", "putenv"}})
    ]
    report(found, "the environment comes from host/process/carrying.py as a mapping:")


def test_no_function_is_longer_than_a_screen() -> None:
    found = [
        f"{module.at(node)}: {node.name} has {length} lines"
        for module in all_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION
    ]
    report(found, f"a function has {MAX_FUNCTION} lines at most:")


def test_no_file_is_longer_than_can_be_read_in_one_go() -> None:
    found = [
        f"{module.path.relative_to(ROOT)}: {length} lines"
        for module in all_modules()
        if (length := len(module.path.read_text().splitlines())) > MAX_FILE and module.name not in LONG_FILES
    ]
    report(found, f"a file has {MAX_FILE} lines at most:")


def test_no_new_import_circle() -> None:
    found = circles(import_graph(all_modules()))
    report([" ".join(sorted(ring)) for ring in found], "these modules import each other in a circle:")


def test_no_class_name_stands_twice() -> None:
    places: dict[str, list[str]] = {}
    for module in all_modules():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module.at(node))
    repeated = {name: found for name, found in places.items() if len(found) > 1}
    new = [f"{name}: {', '.join(found)}" for name, found in repeated.items() if name not in REPEATED_CLASSES]
    report(new, "a class has a name of its own:")
    report(sorted(REPEATED_CLASSES - set(repeated)), "these names stand once, take them out of REPEATED_CLASSES:")


def test_no_folder_holds_more_files_than_can_be_surveyed() -> None:
    sizes = Counter(str(module.path.parent.relative_to(ROOT)) for module in all_modules())
    large = [f"{folder}: {size} files" for folder, size in sizes.items() if size > MAX_FILES]
    report(large, f"a folder holds {MAX_FILES} files at most:")


def test_every_exemption_is_needed() -> None:
    sizes = {module.name: len(module.path.read_text().splitlines()) for module in all_modules()}
    assert all(sizes[name] > MAX_FILE for name in LONG_FILES)
    assert CLOCK_FILES | ENVIRON_FILES | set(RE_EXECUTES) <= NAMES
    spawning = {module.name for module in all_modules() if used(module, SPAWNING)}
    assert set(SPAWN_FILES) | set(SPAWN_ELSEWHERE) <= spawning
    above = {m.name for m in all_modules() for item in imports(m) if within(item.target, set(MODEL_LAYER))}
    assert above >= WHOLE_MODEL_LAYER


def test_nothing_refers_to_what_lies_outside_the_repository() -> None:
    outside = f"/{'work'}/shared"
    found = [str(m.path.relative_to(ROOT)) for m in all_modules() if outside in m.path.read_text()]
    found += [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if outside in page.read_text()]
    report(found, f"no file may name a path below {outside}:")


# -- the rules themselves are tried -----------------------------------------------------------------------------------


def tried(source: str, name: str = "clisup.model.tried") -> Module:
    return Module(name, ROOT / "clisup" / "tried.py", ast.parse(source))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("import trio", "trio"),
        ("import trio.lowlevel as t", "trio.lowlevel"),
        ("def f():\n    from clisup.daemon import app", "clisup.daemon.app"),
        ("if TYPE_CHECKING:\n    from clisup.daemon.app import Daemon", "clisup.daemon.app"),
    ],
)
def test_no_import_is_overlooked(source: str, target: str) -> None:
    assert [item.target for item in imports(tried(source))] == [target]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.monotonic()",
        "from time import monotonic",
        "datetime.datetime.now()",
        "x = time.time",
        "date.today()",
    ],
)
def test_no_clock_is_overlooked(source: str) -> None:
    assert used(tried(source), CLOCKS)


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.Popen([])",
        "from subprocess import run",
        "trio.run_process([])",
        "trio.lowlevel.open_process([])",
        "os.fork()",
    ],
)
def test_no_way_to_start_a_process_is_overlooked(source: str) -> None:
    assert used(tried(source), SPAWNING)


def test_the_package_itself_does_not_stand_for_all_that_is_in_it() -> None:
    assert within("clisup", {"clisup"})
    assert not within("clisup.daemon", {"clisup"})
    assert within("clisup.model.events", {"clisup.model"})
    assert not within("clisup.modelling", {"clisup.model"})


def test_a_circle_is_found_through_other_all_modules() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "d"}}
    assert circles(graph) == {frozenset("abc"), frozenset("de")}


def test_a_circle_of_deferred_imports_is_found() -> None:
    one = tried("def f():\n    from clisup.model.usage import Usage", "clisup.model.events")
    other = tried("if TYPE_CHECKING:\n    from clisup.model import events", "clisup.model.usage")
    assert circles(import_graph([one, other])) == {frozenset({"clisup.model.events", "clisup.model.usage"})}

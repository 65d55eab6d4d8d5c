"""No process that reads what a CLI's tools can write reads a format that can name code.

The test walks all imports, also deferred ones. A module that is loaded by its name counts by its folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from clisup.backends.base import Adapter
from clisup.backends.declarations import REQUIRED_ATTRIBUTES
from tests.test_architecture import Module, all_modules, import_graph, imports, reachable, report, within

PROCESSES = {
    "clisup.daemon", "clisup.backends", "clisup.keeper", "clisup.fleet", "clisup.doors", "clisup.web", "clisup.http",
    "clisup.bridge", "clisup.worker", "clisup.demo", "clisup.recordings", "clisup.bundle",
}  # fmt: skip
"""Folders of the daemon, the keeper, the agent, the doors, the pages, the bridge, the worker and the demo CLI."""
MODULES = {
    "pickle", "_pickle", "marshal", "shelve", "dbm", "dill", "cloudpickle", "joblib", "jsonpickle", "copyreg", "yaml", "ruamel",
    "runpy", "code", "codeop", "imp",
}  # fmt: skip
"""Modules that read formats with code, or run texts as code."""
NAMES = {"eval", "exec", "compile", "__import__"}
"""Functions that every module has."""
ATTRIBUTES = {
    "eval", "exec", "__import__", "get_type_hints", "get_annotations", "evaluate_forward_ref", "ForwardRef", "import_module",
    "spec_from_file_location", "exec_module", "load_module", "pythonapi", "find_class", "__setstate__",
}  # fmt: skip
"""Names of other modules that evaluate a text, load code by a name, or belong to a pickle."""
ALLOWED: Mapping[str, tuple[str, str]] = {
    "clisup.backends.registry": (
        "import_module",
        "adapters of built-in kinds, and of entry points: installed packages that the configuration names",
    ),
    "clisup.daemon.clients.handlers.daemon": ("import_module", "a module of ours, named in the line itself"),
    "clisup.worker.apis.api": ("import_module", "the provider's library, named by the class of its API"),
    "clisup.llm.tools": ("get_type_hints", "annotations of functions of the program that uses the model layer"),
    "clisup.cli.root": ("import_module", "commands of the table in this file"),
}
"""What a module may use, and why no data of others reaches it."""


def walked() -> list[Module]:
    """Return the modules of all these processes."""
    graph = import_graph(all_modules())
    names = reachable({**graph, "": {name for name in graph if within(name, PROCESSES)}}, "")
    return [module for module in all_modules() if module.name in names]


def ways_to_code(module: Module) -> Iterator[tuple[str, str]]:
    """Yield each use of a forbidden name, and its place."""
    for item in imports(module):
        if item.top in MODULES:
            yield item.top, module.at(item.node)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in NAMES | ATTRIBUTES:
            yield node.id, module.at(node)
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield node.attr, module.at(node)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, module.at(node)) for alias in node.names if alias.name in ATTRIBUTES)
        elif isinstance(node, ast.FunctionDef) and node.name in ATTRIBUTES:
            yield node.name, module.at(node)


def test_what_a_tool_can_write_is_read_as_data_alone() -> None:
    modules = walked()
    assert {"clisup.daemon.runs.checkpoint", "clisup.store.session_dir", "clisup.host.files"} < {
        m.name for m in modules
    }
    found = [
        f"{place}: {name}"
        for module in modules
        for name, place in ways_to_code(module)
        if name != ALLOWED.get(module.name, ("", ""))[0]
    ]
    report(found, "These lines can run what a file or a message says:")


def test_every_allowed_use_is_needed() -> None:
    used = {module.name: {name for name, _ in ways_to_code(module)} for module in all_modules()}
    assert [name for name, (allowed, _) in ALLOWED.items() if allowed not in used[name]] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "def f():\n    import shelve", "import yaml", "eval('1')", "exec(x)",
        "map(eval, x)", "compile(x, '', 'exec')", "__import__('os')", "from typing import get_type_hints",
        "import typing\ntyping.get_type_hints(x)", "import inspect\ninspect.get_annotations(x, eval_str=True)",
        "import importlib\nimportlib.import_module(x)", "import ctypes\nctypes.pythonapi.x",
        "import builtins\nbuiltins.eval(x)", "class A:\n    def __setstate__(self): ...",
    ],
)  # fmt: skip
def test_no_way_to_code_is_overlooked(source: str) -> None:
    some = all_modules()[0]
    assert list(ways_to_code(Module("clisup.daemon.tried", some.path, ast.parse(source))))


def test_a_pattern_is_no_code() -> None:
    some = all_modules()[0]
    assert not list(ways_to_code(Module("clisup.daemon.tried", some.path, ast.parse("import re\nre.compile('x')"))))


def test_the_declarations_of_an_adapter_are_checked_without_its_annotations() -> None:
    assert set(REQUIRED_ATTRIBUTES) == {name for name in Adapter.__annotations__ if not hasattr(Adapter, name)}

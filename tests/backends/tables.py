"""Tables for pages about backends, from the declarations of the adapters and of their base class. A test compares the pages."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import get_args

from clisup.backends import base
from clisup.backends.base import Adapter, Capabilities
from clisup.backends.declarations import REQUIRED_ATTRIBUTES, REQUIRED_METHODS
from clisup.backends.errors import LIMIT_WORDS
from clisup.backends.registry import BUILT_IN, get_adapter
from clisup.model.events import EVENT_TYPES, TurnErrorKind
from tests.backends.tried import SHOWN_BY_TESTS, TRIED
from tests.versions import RECORDED

__all__ = ["ABILITIES", "SHOWN", "ability_table", "error_tables", "event_table"]

SHOWN = tuple(kind for kind in BUILT_IN if kind != "demo")  # the demo equals claude
_DAEMON_ONLY = frozenset(
    {
        "session_forked",
        "session_seeded",
        "prompt_accepted",
        "turn_started",
        "process_started",
        "process_exited",
        "turn_completed",
        "watchdog",
        "notice",
        "stderr",
    }
)
ABILITIES: Mapping[str, tuple[str, Callable[[Adapter], bool | None]]] = {
    "one_shot": ("one-shot sessions", lambda a: a.capabilities.one_shot),
    "live": ("live sessions", lambda a: a.capabilities.live),
    "live_by_default": ("live by default", lambda a: a.capabilities.live_by_default),
    "steer": ("steering", lambda a: a.capabilities.steer),
    "kept": ("an interrupt keeps a live process", lambda a: a.capabilities.live),
    "resume": ("sessions of many turns", lambda a: a.capabilities.resume),
    "fork": ("fork and rewind", lambda a: a.capabilities.fork),
    "history": ("`history`", lambda a: a.capabilities.history),
    "chosen_id": ("native session id of your choice", lambda a: a.capabilities.chosen_id),
    "native_sessions": ("list of native sessions", lambda a: a.native_sessions is not None),
    "deltas": ("text as deltas", lambda a: a.capabilities.deltas),
    "thinking": ("thinking", lambda a: a.capabilities.thinking),
    "approvals": ("approvals", lambda a: a.capabilities.approvals),
    "structured": ("`output_schema`", lambda a: a.capabilities.structured),
    "images": ("images", lambda a: a.capabilities.images),
    "system_prompt": ("`system_prompt`", lambda a: a.capabilities.system_prompt),
    "mcp": ("`mcp_config`", lambda a: a.capabilities.mcp),
    "tools": ("`tools` of a session", lambda a: a.capabilities.tools),
    "caller_tools": ("`tools` of a prompt", lambda a: a.capabilities.caller_tools),
    "cli_tools": ("`cli_tools`", lambda a: a.capabilities.cli_tools),
    "set_model": ("another model for a live process", lambda a: "model" in a.capabilities.controls),
    "set_permission_mode": (
        "another permission mode for a live process",
        lambda a: "permission_mode" in a.capabilities.controls,
    ),
    "context_usage": ("`session/context_usage`", lambda a: "context_usage" in a.capabilities.controls),
    "compact": ("`session/compact`", lambda a: "compact" in a.capabilities.controls),
    "models": ("`backend/models`", lambda a: type(a).models_flags is not Adapter.models_flags),
    "usage": ("usage", lambda a: a.capabilities.usage),
    "cost": ("cost", lambda a: a.capabilities.cost),
}
"""Ability to its words in the table, and whether an adapter declares it."""
_TOKENS = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "reasoning_tokens",
)  # fmt: skip
_TRIED_WITH = {**RECORDED, "acp": f"`qwen --acp` {RECORDED['qwen']}"}
_PLACES = {"code": "code", "status": "HTTP", "exit": "exit", "text": "message", "stderr": "stderr"}
_KINDS: tuple[TurnErrorKind, ...] = get_args(TurnErrorKind)


def _adapters() -> dict[str, Adapter]:
    return {kind: get_adapter(kind) for kind in SHOWN}


def event_table() -> str:
    """Return the events of all backends, and the table of the others: one row for each event type that a CLI can give."""
    adapters = _adapters()
    given = [name for name in EVENT_TYPES if name not in _DAEMON_ONLY]
    rows = [[f"`{name}`", *(_yes(name in a.capabilities.events) for a in adapters.values())] for name in given]
    return _shared_and_table(["event", *adapters], rows)


def ability_table() -> str:
    """Return the features of all backends, and the table of the others, with the counts of `usage`."""
    capabilities = {kind: adapter.capabilities for kind, adapter in _adapters().items()}
    rows = [
        [words, *(_ability(name, declares, adapter) for adapter in _adapters().values())]
        for name, (words, declares) in ABILITIES.items()
    ]
    rows += [[words, *(_yes(kind in TRIED[name]) for kind in capabilities)] for name, words in SHOWN_BY_TESTS.items()]
    rows.append(["interrupt by", *(can.interrupt for can in capabilities.values())])
    rows += [[f"`{name}`", *(_yes(name in can.tokens) for can in capabilities.values())] for name in _TOKENS]
    rows.append(["`system_prompt_mode`", *(_named(can.system_prompt_modes) for can in capabilities.values())])
    rows.append(["permission modes", *(_modes(can) for can in capabilities.values())])
    rows.append(
        ["versions", *(f"`{a.default_versions}`" if a.default_versions else "any" for a in _adapters().values())]
    )
    rows.append(["tried with", *(_TRIED_WITH.get(kind, "loopback fakes of the APIs") for kind in capabilities)])
    return _shared_and_table(["", *capabilities], rows)


def error_tables() -> str:
    """Return the table of error kinds, with the rules of each backend. Backends with the same rules share a row."""
    rules = {name: {(r.kind, r.where, r.says): None for r in adapter.errors} for name, adapter in _adapters().items()}
    shared = set.intersection(*map(set, rules.values()))
    parts = []
    for kind in _KINDS:
        backends: dict[str, list[str]] = {_signs(kind, sorted(shared)): ["all"]}
        for name, own in rules.items():
            backends.setdefault(_signs(kind, [rule for rule in own if rule not in shared]), []).append(name)
        rows = [[", ".join(names), signs] for signs, names in backends.items() if signs]
        if rows:
            parts.append(f"### `{kind}`\n\n{_markdown(['backend', 'signs'], rows)}")
    return "\n".join(parts)


def _signs(kind: str, rules: Iterable[tuple[str, str, str]]) -> str:
    """Return the rules for a kind of error, grouped by place."""
    signs: dict[str, list[str]] = {}
    for _, where, says in (rule for rule in rules if rule[0] == kind):
        words = "words of a plan's end" if says == LIMIT_WORDS else f"`{says}`".replace("|", "\\|")
        signs.setdefault(where, []).append(words)
    return "; ".join(f"{_PLACES[where]} {', '.join(said)}" for where, said in signs.items())


def _modes(can: Capabilities) -> str:
    if can.permission_modes is None:
        return "the agent's own"
    return _named(can.permission_modes)


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _ability(name: str, declares: Callable[[Adapter], bool | None], adapter: Adapter) -> str:
    can, there = adapter.capabilities, declares(adapter)
    if there and name in (*can.live_only, *can.one_shot_only):
        return "live" if name in can.live_only else "one-shot"
    return _yes(there)


def _yes(there: bool | None) -> str:
    """None: the running agent tells."""
    return "by agent" if there is None else "yes" if there else "-"


def _shared_and_table(head: list[str], rows: list[list[str]]) -> str:
    """Name the rows with a yes for every backend in a sentence, and put the other rows into a table.

    Backends with equal columns share one column.
    """
    shared = [name for name, *cells in rows if set(cells) == {"yes"}]
    sentence = "\n".join(textwrap.wrap(f"All backends: {', '.join(shared)}.", 100, break_on_hyphens=False))
    columns: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in zip(head, *(row for row in rows if row[0] not in shared), strict=True):
        columns.setdefault(tuple(cells), []).append(name)
    table = [[", ".join(names), *cells] for cells, names in columns.items()]
    return f"{sentence}\n\n{_markdown([column[0] for column in table], [*map(list, zip(*(c[1:] for c in table), strict=True))])}"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def required_table() -> str:
    """Return what each adapter has to declare, with the words of the base class."""
    told = _docstrings("Adapter")
    rows = [[f"`{name}`", told[name]] for name in REQUIRED_ATTRIBUTES]
    rows += [[f"`{name}()`", told[name].splitlines()[0]] for name in REQUIRED_METHODS]
    return _markdown(["required", "content"], rows)


def capability_list() -> str:
    """Return the flags of `Capabilities` by their default."""
    default = Capabilities()
    flags = [name for name in Capabilities.__struct_fields__ if isinstance(getattr(default, name), bool)]
    on, off = ([f"`{name}`" for name in flags if getattr(default, name) is value] for value in (True, False))
    words = f"`Capabilities` says yes to {', '.join(on)}, and no to {', '.join(off)}. Deny what the CLI cannot do."
    return "\n".join(textwrap.wrap(words, 100, break_on_hyphens=False)) + "\n"


def _docstrings(owner: str) -> dict[str, str]:
    """Return the texts of the attributes and methods of a class of `clisup.backends.base`."""
    tree = ast.parse(Path(base.__file__).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    told = {node.name: ast.get_docstring(node) or "" for node in body if isinstance(node, ast.FunctionDef)}
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            told[node.target.id] = str(after.value.value)
    return told


PAGES: Mapping[str, Mapping[str, object]] = {
    "docs/backends/README.md": {"events": event_table, "abilities": ability_table},
    "docs/reference/errors.md": {"errors": error_tables},
    "docs/how-to/add-a-backend.md": {"required": required_table, "capabilities": capability_list},
}
"""Pattern of a table in a page: between `<!-- table NAME -->` and `<!-- end -->`."""

"""The pages that programs build on are held to the code: every event, field, method and error, and nothing else."""

from __future__ import annotations

import json
import re
import tomllib
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from msgspec.structs import fields
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from clisup.cli.status.columns import COLUMNS, DEFAULT, GO_FIRST
from clisup.config.keys import EFFECTS, KEYS, flat
from clisup.config.model import (
    BackendConfig,
    DaemonConfig,
    DefaultsConfig,
    NotifyConfig,
    TracingConfig,
    parse_config,
)
from clisup.config.tables import FleetConfig, GatewayConfig, WebConfig
from clisup.errors import KINDS
from clisup.model import events
from clisup.model.events import EVENT_CLASSES, EVENT_TYPES, Event, EventBase
from clisup.model.structs import WireStruct
from clisup.model.usage import Usage
from clisup.wire import results
from clisup.wire.methods import METHODS
from clisup.wire.params import Params
from clisup.wire.results import BackendInfo, CheckFinding, PromptResult, SessionDetail, SessionSummary, TurnResult
from clisup.wire.status import AccountRow, ClientRow, DaemonInfo, DriftCounts, StorageStatus, Totals

DOCS = Path(__file__).resolve().parents[1] / "docs"
CONFIGURATION_TABLE = r"(^\| key \| default \|.*\n\|[-| ]+\|\n)((?:^\|.*\n)+)"
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON", type(None): "null"}
SHARED: dict[str, type[BaseModel]] = {
    "Usage": Usage,
    "TurnError": events.TurnError,
    "Actor": events.Actor,
    "Block": events.Block,
}
BY_HAND: dict[str, type[BaseModel] | list[type[BaseModel]] | None] = {
    # Methods whose handler makes the JSON itself, and the models that describe it.
    "rpc.discover": None,
    "backend/list": [BackendInfo],
    "backend/check": [CheckFinding],
    "session/prompt": [PromptResult, TurnResult],
    "session/compact": None,  # as of session/prompt
    "session/events": None,
}


STATUS_PARTS: list[type[BaseModel]] = [DaemonInfo, AccountRow]
"""Parts of the answer of `daemon/status` with a table of their own."""

INLINE: list[type[BaseModel]] = [
    results.ChangedFile, results.ChangedKey, results.CheckedList, results.GcFailure, results.GcItem, results.NameRule,
    results.NativeSessionInfo, results.NotifyRow, results.NotifyTest, results.OpenApproval, results.WorktreeCommit,
    ClientRow, DriftCounts, StorageStatus, Totals,
]  # fmt: skip
"""Objects whose fields the page lists in a cell, as `{name, rule}`."""


def type_name(annotation: Any) -> str:
    """A Python annotation as the pages write it."""
    if get_origin(annotation) is Annotated:
        return type_name(get_args(annotation)[0])
    if annotation in SCALARS:
        return SCALARS[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " / ".join(f"`{value}`" for value in args)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(arg) for arg in args if arg is not type(None))
    if origin in (tuple, list):
        return f"list of {type_name(args[0])}"
    if origin is dict:
        value = type_name(args[1])
        return "object" if value == "any JSON" else f"object of {value}"
    if annotation is dict:
        return "object"
    return str(annotation.__name__)


def fields_of(model: type[BaseModel | WireStruct]) -> dict[str, str]:
    """Field -> type, a `?` where it may be absent."""
    if issubclass(model, WireStruct):
        return {
            item.name: type_name(item.type) + ("?" if type(None) in get_args(item.type) else "")
            for item in fields(model)
        }
    return {
        name: type_name(field.annotation) + (asked(field) if issubclass(model, Params) else absence(field))
        for name, field in model.model_fields.items()
    }


def asked(field: FieldInfo) -> str:
    if field.is_required():
        return ", required"
    return "" if field.default is None else f", default `{json.dumps(field.default)}`"


def absence(field: FieldInfo) -> str:
    if type(None) not in get_args(field.annotation):
        return ""
    return " or null" if field.is_required() else "?"


def sections(page: str, level: str) -> dict[str, str]:
    """Heading (its code span) -> the text below it, up to the next heading of any level."""
    text = (DOCS / page).read_text()
    found = re.findall(rf"^{level} `([^`]+)`\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len({name for name, _ in found}) == len(found), f"{page} has a heading twice"
    return dict(found)


def table(section: str) -> dict[str, str]:
    """First column -> second column of the rows of a section's tables, where the first is a code span."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \|", section, re.MULTILINE)
    assert len({name for name, _ in rows}) == len(rows), f"a row stands twice in {rows}"
    return dict(rows)


def test_the_page_of_events_has_every_type_and_no_other() -> None:
    assert list(sections("reference/events.md", "##")) == list(EVENT_TYPES)


@pytest.mark.parametrize("type_", EVENT_TYPES)
def test_the_page_has_every_field_of_an_event_with_its_type(type_: str) -> None:
    section = sections("reference/events.md", "##")[type_]
    assert table(section) == fields_of(EVENT_CLASSES[type_])
    assert section.lstrip()[:1] not in ("|", "#", ""), f"{type_} is not explained"


@pytest.mark.parametrize("name", SHARED)
def test_the_page_has_every_field_of_a_shared_object(name: str) -> None:
    assert table(sections("reference/events.md", "###")[name]) == fields_of(SHARED[name])


def test_the_union_of_events_is_told_apart_by_type_and_holds_every_class() -> None:
    assert set(get_args(Event)) == set(EVENT_CLASSES.values()) == set(EventBase.__subclasses__())


def test_the_page_lists_exactly_the_methods_of_the_table_in_its_order() -> None:
    assert list(sections("reference/protocol.md", "###")) == list(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_page_has_the_params_of_a_method_its_class_and_its_doc_line(name: str) -> None:
    section, method = sections("reference/protocol.md", "###")[name], METHODS[name]
    params = section.split("\nResult")[0]
    assert method.doc in " ".join(section.split())
    assert f"({method.role})" in section
    assert table(params) == fields_of(method.params)


@pytest.mark.parametrize("name", METHODS)
def test_the_page_has_the_result_of_a_method(name: str) -> None:
    section, method = sections("reference/protocol.md", "###")[name], METHODS[name]
    assert "Result" in section
    wanted = [method.result] if method.result else BY_HAND[name] or []
    results = section.split("\nResult")[1:]
    for model, text in zip(wanted, results, strict=False):
        expected = fields_of(model)
        if model is SessionDetail:
            expected = {field: type_ for field, type_ in expected.items() if field not in SessionSummary.model_fields}
        if named := re.search(r"`\{(.+?)\}`", text.partition("\n|")[0]):  # in a sentence, in place of a table
            assert named[1].split(", ") == list(expected), f"{name}: {model.__name__}"
        else:
            assert table(text.split("A summary:")[0]) == expected, f"{name}: {model.__name__}"


def test_the_page_has_every_field_of_a_sessions_summary() -> None:
    text = sections("reference/protocol.md", "###")["session/list"].split("A summary:")[1]
    assert table(text) == fields_of(SessionSummary)


@pytest.mark.parametrize("model", STATUS_PARTS)
def test_the_page_has_every_field_of_what_the_status_is_made_of(model: type[BaseModel]) -> None:
    assert table(sections("reference/protocol.md", "####")[model.__name__]) == fields_of(model)


@pytest.mark.parametrize("model", INLINE)
def test_the_page_lists_the_fields_of_an_object_in_a_cell(model: type[BaseModel]) -> None:
    page = (DOCS / "reference/protocol.md").read_text().replace("?", "")
    assert f"`{{{', '.join(model.model_fields)}}}`" in page


def test_the_page_of_the_status_has_every_column_in_order_and_the_order_in_which_they_go() -> None:
    page = (DOCS / "reference" / "terminal.md").read_text().partition("\n## At a terminal")[0]
    assert re.findall(r"^\| `([A-Z-]+)` \|", page, re.MULTILINE) == list(COLUMNS)
    assert list(COLUMNS)[: len(DEFAULT)] == list(DEFAULT)
    *others, last = GO_FIRST
    assert f"{', '.join(others)} and {last} are left out, in this order" in " ".join(page.split())


def test_only_methods_that_make_their_own_json_are_described_by_hand() -> None:
    assert set(BY_HAND) == {name for name, method in METHODS.items() if method.result is None}


def test_the_page_has_every_error_kind_with_its_code_and_whether_trying_again_can_help() -> None:
    text = (DOCS / "reference/protocol.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)` \| (-\d+) \| (yes|no) \|", text, re.MULTILINE)
    on_wire = list(KINDS)[: list(KINDS).index("daemon_not_running")]
    assert rows == [(k, str(KINDS[k].code), "yes" if KINDS[k].retryable else "no") for k in on_wire]


@pytest.mark.parametrize("page", ["reference/protocol.md", "reference/events.md"])
def test_the_pages_point_to_files_that_are_there(page: str) -> None:
    for target in re.findall(r"\]\(([a-z_./-]+\.md)", (DOCS / page).read_text()):
        assert ((DOCS / page).parent / target).exists(), f"{page} points to {target}"


# -- the configuration


def configuration_rows() -> dict[str, list[str]]:
    """Key of a table ("backends.*.timeouts"; "[]" at its end for the tables of a list) -> its rows."""
    models = {"daemon": DaemonConfig, "defaults": DefaultsConfig, "backends.*": BackendConfig, "tracing": TracingConfig}
    models |= {"fleet": FleetConfig, "web": WebConfig, "gateway": GatewayConfig}
    tables = {**{name: model() for name, model in models.items()}, "notify[]": NotifyConfig.model_construct()}
    defaults = {f"{name}.{key}": value for name, table in tables.items() for key, value in flat(table)}
    rows: dict[str, list[str]] = {}
    for key, row in KEYS.items():
        table, _, name = key.replace("notify[]", "notify").rpartition(".")
        if not table:
            continue  # the list of tables, which the section of its tables describes
        default = f"`{json.dumps(_whole(defaults[key]))}`" if key in defaults else "-"
        rows.setdefault(table, []).append(f"| `{name}` | {default} | {EFFECTS[row.effect]} | {row.text} |\n")
    return rows


def test_the_page_of_the_configuration_has_every_key_with_default_effect_and_words() -> None:
    found: dict[str, list[str]] = {}
    for heading, text in sections("reference/configuration.md", "##").items():
        name = heading.strip("[]").replace("backends.NAME", "backends.*").replace("prices.PATTERN", "prices.*")
        for number, rows in enumerate(re.findall(CONFIGURATION_TABLE, text, re.MULTILINE)):
            found[f"{name}.rules[]" if number else name] = rows[1].splitlines(keepends=True)
    assert found == configuration_rows()


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_the_example_of_a_configuration_is_one() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "reference/configuration.md").read_text(), re.DOTALL)
    assert parse_config(tomllib.loads(example)).daemon.max_running == 4


def test_the_table_of_the_daemons_files_has_each_of_them_once() -> None:
    table = (
        (DOCS / "explanation/architecture.md").read_text().partition("### The daemon's files")[2].partition("\n## ")[0]
    )
    named = {
        row.split("|")[1].strip().strip("`/"): sorted(re.findall(r"`(\w+)`", row.split("|")[2]))
        for row in table.splitlines()
        if re.match(r"\| (`|\(top)", row) and "folder of" not in row
    }
    files: dict[str, list[str]] = {}
    for path in (DOCS.parent / "clisup/daemon").rglob("*.py"):
        if path.stem != "__init__":
            folder = "(top)" if path.parent.name == "daemon" else path.parent.name
            files.setdefault(folder, []).append(path.stem)
    assert named == {folder: sorted(names) for folder, names in files.items()}


@pytest.mark.parametrize("page", ["explanation/architecture.md", "reference/glossary.md"])
def test_files_that_a_page_about_the_code_names_are_there(page: str) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", (DOCS / page).read_text())
    assert named
    roots = (DOCS.parent, DOCS.parent / "clisup")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []

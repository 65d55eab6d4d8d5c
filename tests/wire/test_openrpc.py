"""The OpenRPC document and the schema of events: valid by their own rules, made from the tables, and kept beside the pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

import clisup
from clisup.errors import KINDS
from clisup.model.events import EVENT_TYPES
from clisup.wire.methods import METHODS, PROTOCOL_VERSION
from clisup.wire.openrpc import (
    BY_HAND,
    NEVER_YET,
    OF_CONNECTIONS,
    OWN_ERRORS,
    document,
    errors_of,
    events_schema,
    status_schema,
)

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
RECORDED = sorted((ROOT / "tests" / "backends" / "expected").rglob("*.jsonl"))
DOCUMENT: dict[str, Any] = json.loads(document(METHODS, PROTOCOL_VERSION))
EVENTS = events_schema()
EVENT = {"session_id": "s", "seq": 1, "ts": "2026-01-02T03:04:05.000006Z", "turn_id": None, "source": "daemon"}


def held(name: str, made: Any) -> None:
    """The copy in docs/schemas is what the code makes. CLISUP_UPDATE_EXPECTED=1 writes it anew."""
    path, text = SCHEMAS / name, json.dumps(made, indent=1) + "\n"
    if os.environ.get("CLISUP_UPDATE_EXPECTED"):
        path.write_text(text)
    assert path.read_text() == text, f"{path} is not what the code makes: CLISUP_UPDATE_EXPECTED=1 pytest {__file__}"


def schemas_within(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from schemas_within(item)
    elif isinstance(value, list):
        for item in value:
            yield from schemas_within(item)


def test_the_copies_beside_the_pages_are_those_of_the_code() -> None:
    held("openrpc.json", DOCUMENT)
    held("events.json", EVENTS)


def test_the_schema_of_the_status_is_the_models() -> None:
    held("status.json", status_schema())


def test_the_document_is_valid_by_the_official_meta_schema() -> None:
    meta = json.loads((Path(__file__).parent / "data" / "openrpc_meta_schema.json").read_text())
    any_schema = Resource.from_contents({"type": ["object", "boolean"], "definitions": {}}, DRAFT7)
    reference = {"definitions": {"JSONSchemaObject": {"properties": {"$ref": {"type": "string"}}}}}
    registry: Registry[Any] = Registry().with_resources(
        [
            ("https://meta.json-schema.tools", any_schema),
            ("https://meta.json-schema.tools/", Resource.from_contents(reference, DRAFT7)),
        ]
    )
    validator = Draft7Validator({**meta, "$schema": "http://json-schema.org/draft-07/schema#"}, registry=registry)
    assert [error.message for error in validator.iter_errors(DOCUMENT)] == []
    assert list(validator.iter_errors({**DOCUMENT, "methods": [{"name": "no params"}]}))


def test_every_schema_in_it_is_one() -> None:
    found = [entry["schema"] for entry in schemas_within(DOCUMENT) if "schema" in entry]
    found += DOCUMENT["components"]["schemas"].values()
    assert len(found) > 100
    for schema in found:
        Draft202012Validator.check_schema(schema)
    Draft202012Validator.check_schema(EVENTS)


def test_every_reference_leads_to_something_and_nothing_lies_there_unused() -> None:
    refs = {entry["$ref"] for entry in schemas_within(DOCUMENT) if isinstance(entry.get("$ref"), str)}
    inside = {ref for ref in refs if ref.startswith("#/")}
    assert refs - inside == {"https://meta.open-rpc.org/"}
    for ref in inside:
        _, group, kind, name = ref.split("/")
        assert name in DOCUMENT[group][kind], ref
    schemas = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert schemas <= inside


def test_it_has_every_method_of_the_table_in_its_order_with_its_class() -> None:
    assert [(entry["name"], entry["x-role"], entry["summary"]) for entry in DOCUMENT["methods"]] == [
        (name, method.role, method.doc) for name, method in METHODS.items()
    ]
    assert DOCUMENT["info"]["version"] == clisup.__version__
    assert DOCUMENT["info"]["x-protocol-version"] == PROTOCOL_VERSION


@pytest.mark.parametrize("name", METHODS)
def test_it_has_every_param_of_a_method_and_says_which_ones_must_be_there(name: str) -> None:
    entry = next(entry for entry in DOCUMENT["methods"] if entry["name"] == name)
    fields = METHODS[name].params.model_fields
    assert {param["name"]: param["required"] for param in entry["params"]} == {
        field: info.is_required() for field, info in fields.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_no_result_is_an_empty_promise(name: str) -> None:
    entry = next(entry for entry in DOCUMENT["methods"] if entry["name"] == name)
    assert entry["result"]["schema"] not in (
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
    )


def test_what_handlers_write_by_hand_is_described_and_nothing_else_is() -> None:
    assert set(BY_HAND) == {name for name, method in METHODS.items() if method.result is None}


def test_every_kind_of_error_belongs_to_a_method_or_a_connection_or_is_known_not_to_come() -> None:
    on_wire = set(DOCUMENT["components"]["errors"])
    told = set(OF_CONNECTIONS) | set(NEVER_YET)
    for name, method in METHODS.items():
        told |= set(errors_of(name, method))
    assert told == on_wire
    assert on_wire == set(list(KINDS)[: list(KINDS).index("daemon_not_running")])
    assert set(OWN_ERRORS) <= set(METHODS)


def test_the_schema_of_events_knows_every_type() -> None:
    told = {
        EVENTS["$defs"][choice["$ref"].split("/")[-1]]["properties"]["type"]["const"] for choice in EVENTS["oneOf"][:-1]
    }
    assert told == set(EVENT_TYPES) == set(EVENTS["oneOf"][-1]["properties"]["type"]["not"]["enum"])


@pytest.mark.parametrize(
    ("event", "good"),
    [
        ({"type": "notice", "code": "held", "message": "waits"}, True),
        ({"type": "notice", "code": "held"}, False),
        ({"type": "turn_completed", "outcome": "completed", "text": "", "usage": {"source": "unknown"}}, False),
        ({"type": "from_a_newer_daemon", "code": 1}, True),
        ({"code": "held", "message": "no type"}, False),
    ],
)  # fmt: skip
def test_the_schema_of_events_takes_what_is_one_and_refuses_what_is_none(event: dict[str, Any], good: bool) -> None:
    assert Draft202012Validator(EVENTS).is_valid({**EVENT, **event}) is good

"""JSON Schemas of params, results and events. Pure.

The schemas come from the models, with one change: a field of a result is `required` if the daemon always writes this field. Events
and some results leave out fields that are null by default. A reader takes a missing field as null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from clisup.model.events import EVENT_CLASSES, EventBase
from clisup.wire import results
from clisup.wire.status import StatusResult

JsonSchema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Envelope(results.Result):
    """Event in its envelope."""

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: Literal["backend", "daemon"]
    event: EventBase


class GapParams(results.Result):
    """Range of missing events: params of `session/gap`, and an entry of `gaps`."""

    session_id: str
    from_seq: int
    to_seq: int
    reason: Annotated[str, Field(examples=["retention", "damaged"])]


class PageGap(results.Result):
    """Range of missing events in a page of history."""

    from_seq: int
    to_seq: int
    reason: Annotated[str, Field(examples=["retention", "damaged"])]


class EventsPage(results.Result):
    """Page of history. For the next page ask with `after_seq = next_seq - 1`, until `eof` is true."""

    events: list[Envelope]
    next_seq: int
    eof: bool
    gaps: list[PageGap] | None = None


BY_HAND: dict[str, Any] = {
    # Methods whose handlers make the JSON themselves, each with the type of its result.
    "rpc.discover": dict[str, Any],
    "backend/list": list[results.BackendInfo],
    "backend/check": list[results.CheckFinding],
    "session/prompt": results.PromptResult | results.TurnResult,
    "session/compact": results.PromptResult | results.TurnResult,
    "session/events": EventsPage,
}


class WantedSchema(NamedTuple):
    """Request for the schema of a type, under a name. `given` is true for what the daemon writes, false for what it reads."""

    name: str
    type: Any
    given: bool


class _Schemas(GenerateJsonSchema):
    """Generator of pydantic, without a title for each field, and with the rule for `required` of the module's docstring."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        inner = field["schema"]
        if self.mode == "serialization" and inner["type"] == "default":
            return inner.get("default") is not None or "default_factory" in inner
        return super().field_is_required(field, total)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchema:
        return _plain(super().model_schema(schema))


def _plain(found: JsonSchema) -> JsonSchema:
    """Put each paragraph of a description on one line, as Markdown wants it."""
    if "description" in found:
        paragraphs = re.split(r"\n\s*\n", found["description"])
        found["description"] = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return found


def schemas_of(asked: Iterable[WantedSchema], ref: str) -> tuple[dict[str, JsonSchema], dict[str, JsonSchema]]:
    """Return the schemas by name, and the definitions. `ref` is the place of definitions, such as `#/components/schemas/{model}`.

    The definitions always include `Envelope`, which describes an event of any type on the wire.
    """
    own = [WantedSchema(f"event:{cls.__name__}", cls, given=True) for cls in _EVENT_CLASSES]
    own.append(WantedSchema("event:Envelope", Envelope, given=True))
    inputs: list[Any] = [
        (item.name, "serialization" if item.given else "validation", TypeAdapter(item.type)) for item in (*asked, *own)
    ]
    made, rest = TypeAdapter.json_schemas(inputs, ref_template=ref, schema_generator=_Schemas)
    definitions: dict[str, JsonSchema] = rest["$defs"]
    del definitions["EventBase"]
    definitions["Envelope"] = _envelope(definitions["Envelope"], ref)
    return {name: schema for (name, _), schema in made.items() if not name.startswith("event:")}, definitions


def events_schema() -> JsonSchema:
    """Return the schema of an event for clients: the params of `session/event`, a line of `clisup logs --json`."""
    _, definitions = schemas_of((), "#/$defs/{model}")
    envelope = definitions.pop("Envelope")
    return {"$schema": DIALECT, "title": "clisup event", **envelope, "$defs": dict(sorted(definitions.items()))}


def status_schema() -> JsonSchema:
    """Return the schema of the result of `daemon/status` and of the output of `clisup status --json`."""
    found = StatusResult.model_json_schema(mode="serialization", schema_generator=_Schemas)
    return {"$schema": DIALECT, **found, "title": "clisup status"}


def _envelope(model: JsonSchema, ref: str) -> JsonSchema:
    """Return the schema with the fields of envelope and event side by side, discriminated by `type`."""
    names = [name for name in Envelope.model_fields if name != "event"]
    properties: JsonSchema = {name: model["properties"][name] for name in names}
    properties["type"] = {"type": "string"}
    properties["native"] = {"type": "string", "description": "The CLI's own line, if the client asked for `raw`."}
    types = {cls.type: cls.__name__ for cls in _EVENT_CLASSES}
    return {
        "description": "An event in its envelope. Ignore unknown types and fields: new ones may appear.",
        "type": "object",
        "properties": properties,
        "required": [*names, "type"],
        "oneOf": [
            *({"$ref": ref.format(model=name)} for name in types.values()),
            {"properties": {"type": {"not": {"enum": list(types)}}}},
        ],
    }


_EVENT_CLASSES = tuple(EVENT_CLASSES.values())

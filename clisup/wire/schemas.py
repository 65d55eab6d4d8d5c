"""JSON Schemas of what travels over the wire: params and results of the methods, and events. Pure.

The schemas are those of the models, with one change: of an answer, a field is `required` where the daemon always writes it. A
field that may be null by default is left out of events, and of some answers; a reader takes a missing field as null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from clisup.model.events import EVENT_CLASSES, EventBase
from clisup.wire import models as m
from clisup.wire.status_models import StatusResult

__all__ = ["BY_HAND", "JsonSchema", "events_schema", "schemas_of", "status_schema"]

JsonSchema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Envelope(m.Result):
    """Event in its envelope."""

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: Literal["backend", "daemon"]
    event: EventBase


class GapParams(m.Result):
    """Params of `session/gap`, and an entry of `gaps`: these events are gone."""

    session_id: str
    from_seq: int
    to_seq: int
    reason: Annotated[str, Field(examples=["retention", "damaged"])]


class PageGap(m.Result):
    """Events that are gone, in a page of history."""

    from_seq: int
    to_seq: int
    reason: Annotated[str, Field(examples=["retention", "damaged"])]


class EventsPage(m.Result):
    """A page of history. Ask again with `after_seq = next_seq - 1` until `eof` is true."""

    events: list[Envelope]
    next_seq: int
    eof: bool
    gaps: list[PageGap] | None = None


BY_HAND: dict[str, Any] = {
    # Methods whose handler makes the JSON itself, and the type that describes it.
    "rpc.discover": dict[str, Any],
    "backend/list": list[m.BackendInfo],
    "backend/check": list[m.CheckFinding],
    "session/prompt": m.PromptResult | m.TurnResult,
    "session/compact": m.PromptResult | m.TurnResult,
    "session/events": EventsPage,
}


class Asked(NamedTuple):
    """A schema that is wanted: under this name, of this type, as it is taken (`validation`) or given (`serialization`)."""

    name: str
    type: Any
    given: bool


class _Schemas(GenerateJsonSchema):
    """As pydantic makes them, but without a title for each field, and with `required` as the module's docstring says."""

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
    """Docstrings as Markdown on one line a paragraph."""
    if "description" in found:
        paragraphs = re.split(r"\n\s*\n", found["description"])
        found["description"] = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return found


def schemas_of(asked: Iterable[Asked], ref: str) -> tuple[dict[str, JsonSchema], dict[str, JsonSchema]]:
    """(name -> schema, definitions). `ref` is where definitions are found, such as `#/components/schemas/{model}`.

    The definitions always hold `Envelope`, that is an event of any type as the wire has it.
    """
    own = [Asked(f"event:{cls.__name__}", cls, given=True) for cls in _EVENT_CLASSES]
    own.append(Asked("event:Envelope", Envelope, given=True))
    inputs: list[Any] = [
        (item.name, "serialization" if item.given else "validation", TypeAdapter(item.type)) for item in (*asked, *own)
    ]
    made, rest = TypeAdapter.json_schemas(inputs, ref_template=ref, schema_generator=_Schemas)
    definitions: dict[str, JsonSchema] = rest["$defs"]
    del definitions["EventBase"]
    definitions["Envelope"] = _envelope(definitions["Envelope"], ref)
    return {name: schema for (name, _), schema in made.items() if not name.startswith("event:")}, definitions


def events_schema() -> JsonSchema:
    """The schema of an event as a client gets it: the params of `session/event`, a line of `clisup logs --json`."""
    _, definitions = schemas_of((), "#/$defs/{model}")
    envelope = definitions.pop("Envelope")
    return {"$schema": DIALECT, "title": "clisup event", **envelope, "$defs": dict(sorted(definitions.items()))}


def status_schema() -> JsonSchema:
    """The schema of what `daemon/status` answers and `clisup status --json` prints, also where no daemon runs."""
    found = StatusResult.model_json_schema(mode="serialization", schema_generator=_Schemas)
    return {"$schema": DIALECT, **found, "title": "clisup status"}


def _envelope(model: JsonSchema, ref: str) -> JsonSchema:
    """The envelope's fields and the event's, side by side, told apart by `type`."""
    names = [name for name in Envelope.model_fields if name != "event"]
    properties: JsonSchema = {name: model["properties"][name] for name in names}
    properties["type"] = {"type": "string"}
    properties["native"] = {"type": "string", "description": "The CLI's own line, where `raw` was asked for."}
    types = {cls.type: cls.__name__ for cls in _EVENT_CLASSES}
    return {
        "description": "An event in its envelope. Pass over types and fields that you do not know: new ones may come.",
        "type": "object",
        "properties": properties,
        "required": [*names, "type"],
        "oneOf": [
            *({"$ref": ref.format(model=name)} for name in types.values()),
            {"properties": {"type": {"not": {"enum": list(types)}}}},
        ],
    }


_EVENT_CLASSES = tuple(EVENT_CLASSES.values())

"""OpenRPC document of the method table, the result of `rpc.discover`, and the JSON Schemas in it. Pure.

Source: the OpenRPC specification, version 1.3.2 (https://spec.open-rpc.org). Three extensions (`x-...`) hold facts without a
field there: the access class of a method (`x-role`), the notifications of daemon and client (`x-notifications`), and the errors
that close a connection (`x-connection-errors`).

The schemas come from the models, with one change: a field of a result is `required` if the daemon always writes this field. Events
and some results leave out fields that are null by default. A reader takes a missing field as null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

import clisup
from clisup.errors import KINDS
from clisup.model.events import EVENT_CLASSES, EventBase
from clisup.wire import params, results
from clisup.wire.results import ToolCallParams, ToolCancelledParams
from clisup.wire.status import StatusResult

if TYPE_CHECKING:
    from clisup.wire.methods import Method

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


OPENRPC = "1.3.2"
META_SCHEMA = "https://meta.open-rpc.org/"
REF = "#/components/schemas/{model}"
OF_ANY = ("invalid_params", "internal", "request_cancelled", "overloaded")
OF_CONNECTIONS = ("parse_error", "invalid_request", "method_not_found", "overloaded", "permission_denied")
NEVER_YET = ("backend_not_logged_in", "box_away", "fleet_away")
"""Kinds with a code in version 1 that the daemon never returns. A CLI without a login fails its turn instead, and the fleet's
agent answers for a box that is away."""

_BACKEND = ("backend_not_found", "backend_unavailable", "backend_version_unsupported")
_ADMITTED = ("storage_failed", "shutting_down")
_TURN = (
    "session_closed",
    "session_busy",
    "unsupported",
    "limit_exceeded",
    "rate_limited",
    "budget_exhausted",
    "turn_not_found",
    *_ADMITTED,
)
_GIT = ("worktree_refused", "git_failed")
OWN_ERRORS: dict[str, tuple[str, ...]] = {
    # Without the errors of every method, and without `session_not_found` of the methods that name a session.
    "initialize": ("unsupported",),
    "daemon/reload": ("configuration", "session_busy", "shutting_down", "storage_failed"),
    "daemon/restart": ("configuration", "unsupported", "shutting_down"),
    "daemon/gc": ("storage_failed",),
    "backend/env": ("backend_not_found",),
    "backend/models": (*_BACKEND, "unsupported"),
    "backend/check": ("backend_not_found",),
    "session/new": (
        *_BACKEND, *_ADMITTED, *_GIT, "session_exists", "session_busy", "limit_exceeded", "unsupported",
    ),
    "session/get": ("storage_failed",),
    "session/prompt": _TURN,
    "session/compact": _TURN,
    "session/set_model": ("session_closed", "unsupported", "backend_not_found", *_ADMITTED),
    "session/set_permission_mode": ("session_closed", "unsupported", "backend_not_found", *_ADMITTED),
    "session/set_title": ("session_closed", *_ADMITTED),
    "session/set_budget": ("session_closed", *_ADMITTED),
    "session/context_usage": ("session_closed", "unsupported", "backend_not_found"),
    "session/interrupt": ("turn_not_found", *_ADMITTED),
    "session/fork": (
        *_BACKEND, *_ADMITTED, "session_closed", "session_exists", "session_busy", "turn_not_found", "limit_exceeded",
        "unsupported",
    ),
    "approval/respond": ("approval_not_found", "approval_already_resolved", "option_needed", "session_closed", "unsupported", *_ADMITTED),
    "tool/serve": ("unsupported", "session_closed"),
    "tool/result": ("tool_call_not_found", "unsupported", "session_closed"),
    "session/diff": _GIT,
    "session/land": (*_GIT, "session_busy", "storage_failed"),
    "session/discard": (*_GIT, *_ADMITTED, "session_busy"),
    "session/close": _ADMITTED,
    "session/delete": ("session_busy", "storage_failed"),
    "session/subscribe": ("limit_exceeded", "storage_failed"),
    "session/unsubscribe": ("storage_failed",),
    "session/note": ("session_closed", "storage_failed"),
    "session/ack": ("storage_failed",),
    "session/events": ("storage_failed",),
    "session/blob": ("storage_failed",),
    "bridge/hello": ("permission_denied",),
    "bridge/call": ("permission_denied",),
}  # fmt: skip


class CancelRequestParams(params.Params):
    """Id of the request of this connection to cancel."""

    id: str | int


NOTIFICATIONS: dict[str, tuple[str, Any, str]] = {
    # name -> (who sends it, the model of its params, what it says)
    "session/event": ("server", None, "Event of a session that this connection follows."),
    "session/gap": ("server", GapParams, "Events of a session that this connection follows are gone."),
    "tool/call": ("server", ToolCallParams, "Run a tool of the session: a request, which this client answers with `{content, is_error?}`."),
    "tool/cancelled": ("server", ToolCancelledParams, "Cancel a call that this client has received."),
    "$/cancel_request": ("client", CancelRequestParams, "Cancel a running request. Its answer is the error `request_cancelled`."),
}  # fmt: skip


def document(methods: dict[str, Method], protocol_version: int) -> bytes:
    """Return the OpenRPC document as JSON. It has every method, in the order of the table."""
    by_name = {name: model for name, (_, model, _) in NOTIFICATIONS.items() if model is not None}
    asked = [
        *(WantedSchema(f"{name} params", method.params, given=False) for name, method in methods.items()),
        *(WantedSchema(f"{name} result", _result_type(name, method), given=True) for name, method in methods.items()),
        *(WantedSchema(f"{name} params", model, given=True) for name, model in by_name.items()),
    ]
    schemas, definitions = schemas_of(asked, REF)
    schemas["session/event params"] = {"$ref": REF.format(model="Envelope")}
    schemas["rpc.discover result"] = {"$ref": META_SCHEMA}
    made: JsonSchema = {
        "openrpc": OPENRPC,
        "$schema": META_SCHEMA,
        "info": {
            "title": "clisup",
            "version": clisup.__version__,
            "description": "JSON-RPC 2.0, one object a line, over a Unix socket. docs/reference/protocol.md is the page to read.",
            "license": {"name": "Apache-2.0"},
            "x-protocol-version": protocol_version,
        },
        "methods": [_method(name, method, schemas, definitions) for name, method in methods.items()],
        "x-notifications": [_notification(name, schemas, definitions) for name in NOTIFICATIONS],
        "x-connection-errors": [_error_ref(kind) for kind in OF_CONNECTIONS],
    }
    used = _used(made, definitions)
    made["components"] = {
        "schemas": {name: definitions[name] for name in sorted(used)},
        "errors": {kind: _error(kind) for kind in _on_the_wire()},
    }
    return json.dumps(made, separators=(",", ":")).encode()


def models_of(methods: dict[str, Method]) -> Iterator[type[BaseModel]]:
    """The models that `document` looks at. They are built late: who must not stop for long builds one at a time first."""
    for name, method in methods.items():
        yield method.params
        yield from (part for part in _parts(_result_type(name, method)) if issubclass(part, BaseModel))


def errors_of(name: str, method: Method) -> list[str]:
    """The kinds that a method may answer with, in the order of `KINDS`."""
    own = {*OF_ANY, *OWN_ERRORS.get(name, ())}
    if "session_id" in method.params.model_fields:
        own.add("session_not_found")
    return [kind for kind in KINDS if kind in own]


def _result_type(name: str, method: Method) -> Any:
    return method.result if method.result is not None else BY_HAND[name]


def _parts(found: Any) -> tuple[type, ...]:
    """`A` -> A; `list[A]`, `A | B` -> what they are made of."""
    return (found,) if isinstance(found, type) and not get_args(found) else get_args(found)


def _method(
    name: str, method: Method, schemas: dict[str, JsonSchema], definitions: dict[str, JsonSchema]
) -> JsonSchema:
    return {
        "name": name,
        "summary": method.doc,
        "x-role": method.role,
        "paramStructure": "by-name",
        "params": _params(_resolved(schemas[f"{name} params"], definitions)),
        "result": {"name": "result", "schema": schemas[f"{name} result"]},
        "errors": [_error_ref(kind) for kind in errors_of(name, method)],
    }


def _notification(name: str, schemas: dict[str, JsonSchema], definitions: dict[str, JsonSchema]) -> JsonSchema:
    sender, model, summary = NOTIFICATIONS[name]
    found = {"name": name, "summary": summary, "x-sent-by": sender, "paramStructure": "by-name"}
    if model is None:  # told apart by `type`: no list of names can say that
        return {**found, "params": [], "x-params-schema": schemas[f"{name} params"]}
    return {**found, "params": _params(_resolved(schemas[f"{name} params"], definitions))}


def _params(schema: JsonSchema) -> list[JsonSchema]:
    required = schema.get("required", ())
    return [
        {"name": name, "required": name in required, "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]


def _resolved(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    return definitions[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def _used(value: Any, definitions: dict[str, JsonSchema]) -> set[str]:
    """Return the names of the definitions that `value` refers to, directly or through others."""
    found: set[str] = set()
    open_ = [value]
    while open_:
        item = open_.pop()
        if isinstance(item, dict):
            name = str(item.get("$ref", "")).removeprefix(REF.format(model=""))
            if name in definitions and name not in found:
                found.add(name)
                open_.append(definitions[name])
            open_ += item.values()
        elif isinstance(item, list):
            open_ += item
    return found


def _on_the_wire() -> list[str]:
    return list(KINDS)[: list(KINDS).index("daemon_not_running")]


def _error(kind: str) -> JsonSchema:
    """Return an error object. Its `message` is the kind; the daemon's own message names the object and the reason."""
    found = KINDS[kind]
    return {"code": found.code, "message": kind, "data": {"kind": kind, "retryable": found.retryable}}


def _error_ref(kind: str) -> JsonSchema:
    return {"$ref": f"#/components/errors/{kind}"}

"""JSON Schema of the configuration file, made from the model and the table of keys, for editors of TOML. Pure.

The schema is draft 4 without references, because taplo, the language server of most editors for TOML, understands only
that.
"""

from __future__ import annotations

from typing import Any

from clisup.config.keys import EFFECTS, KEYS
from clisup.config.model import Config

DRAFT = "http://json-schema.org/draft-04/schema#"
_LEFT_OUT = ("title", "$defs", "format", "writeOnly")
_TABLES = {
    "daemon": "The daemon: limits, storage, stopping.",
    "daemon.retention": "What is kept of events and spools, by age and in all.",
    "backends": "The backends by name; claude, codex, demo, gemini and qwen are there without a table.",
    "backends.*": "One backend: a CLI, how it is started, and when its turns are ended.",
    "backends.*.timeouts": "Seconds; 0: never. A session may override each.",
    "backends.*.approvals": "What becomes of a CLI's questions (docs/approvals.md).",
    "backends.*.live": "When the process of a live session is let go between two turns; 0: never for that reason.",
    "backends.*.limits": "Bytes, and counts; 0: none.",
    "prices": "What tokens cost, by patterns of model names: before the built-in list (docs/budgets.md).",
    "prices.*": "One pattern: US dollars for a million tokens.",
    "tracing": "Spans of turns and tools for a collector (docs/tracing.md); needs the extra `otel`.",
}


def config_schema() -> dict[str, Any]:
    """Return the schema: every key with its description, its default, and when a change of it takes effect."""
    raw = Config.model_json_schema()
    schema = _table(raw, raw["$defs"], "")
    return {"$schema": DRAFT, "title": "The configuration of clisup", **schema}


def _table(schema: dict[str, Any], models: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a schema without references, in draft 4, with the descriptions of the table of keys."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    schema = {**models[name], **{k: v for k, v in schema.items() if k != "$ref"}} if name else schema
    plain = _draft_4({word: value for word, value in schema.items() if word not in _LEFT_OUT})
    if name:
        plain.pop("default", None)  # a table needs no default: each of its keys has its own
    for word in ("properties", "patternProperties"):
        if word in plain:
            plain[word] = {each: _table(one, models, _below(key, each, word)) for each, one in plain[word].items()}
    if "patternProperties" in plain:
        plain["additionalProperties"] = False
    if "items" in plain:
        plain["items"] = _table(plain["items"], models, f"{key}[]")
    plain.pop("description", None)
    return {"description": words, **plain} if (words := _words(key)) else plain


def _below(key: str, name: str, word: str) -> str:
    below = "*" if word == "patternProperties" else name
    return f"{key}.{below}" if key else below


def _words(key: str) -> str:
    if key in _TABLES:
        return _TABLES[key]
    row = KEYS.get(key)
    return f"{row.text[:1].upper()}{row.text[1:]}. A change takes effect: {EFFECTS[row.effect]}." if row else ""


def _draft_4(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema in draft 4: `exclusiveMinimum` is a boolean there. Null is removed, because TOML has none."""
    if "exclusiveMinimum" in schema:
        schema = {**schema, "minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if choices := [one for one in schema.pop("anyOf", ()) if one.get("type") != "null"]:
        assert len(choices) == 1, "the model has no key of two types"
        schema = {**choices[0], **schema}
    if schema.get("default", 0) is None:
        schema.pop("default")
    schema.pop("propertyNames", None)  # of a later draft; additionalProperties cannot express its rule for names
    return schema

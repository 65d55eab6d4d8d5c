"""The table of keys knows every key of the model and no other; the schema and the published copy are made from both."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clisup.config.keys import DRAFT, EFFECTS, KEYS, changes, config_schema, flat, kept_back, key_of
from clisup.config.model import Config, parse_config
from clisup.errors import ConfigurationError

from .config_model import model_keys

SCHEMA = config_schema()
PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "config.json"


def test_every_key_of_the_model_is_in_the_table_and_no_other() -> None:
    assert {key for key, _ in model_keys()} == set(KEYS)


def test_every_key_is_explained_and_takes_effect_somehow() -> None:
    assert all(row.text and row.effect in EFFECTS for row in KEYS.values())
    assert [key for key, row in KEYS.items() if row.effect == "start"] == ["daemon.socket", "daemon.state_dir"]


def test_a_key_as_it_stands_in_a_file_is_found() -> None:
    assert key_of("daemon.max_running") == KEYS["daemon.max_running"]
    assert key_of("backends.claude.timeouts.turn") == KEYS["backends.*.timeouts.turn"]
    assert key_of("backends.claude.env.API_KEY") == KEYS["backends.*.env"]
    assert key_of('prices."gpt-6.1-sol".input') == key_of("prices.opus.input") == KEYS["prices.*.input"]
    assert key_of("backends.claude") is None and key_of("daemon") is None and key_of("x.y") is None


def test_every_key_of_a_configuration_is_found() -> None:
    config = parse_config(
        {"backends": {"mine": {"kind": "demo", "env": {"A": "b"}}}, "prices": {"a.b": {"input": 1, "output": 2}}}
    )
    assert [key for key, _ in flat(config) if key.startswith("prices")] == ['prices."a.b".input', 'prices."a.b".output']
    assert all(key_of(key) for key, _ in flat(config))


# -- the schema -------------------------------------------------------------------------------------------------------


def test_the_published_schema_is_the_models() -> None:
    """CLISUP_UPDATE_EXPECTED=1 writes it anew."""
    text = json.dumps(SCHEMA, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("CLISUP_UPDATE_EXPECTED"):
        PUBLISHED.write_text(text)
    assert PUBLISHED.read_text() == text


def test_the_schema_is_one_of_draft_4_without_references() -> None:
    assert SCHEMA["$schema"] == DRAFT
    jsonschema.Draft4Validator.check_schema(SCHEMA)
    text = json.dumps(SCHEMA)
    assert "$ref" not in text and "$defs" not in text and "anyOf" not in text and "null" not in text


def test_every_key_has_its_words_in_the_schema() -> None:
    for pattern, row in KEYS.items():
        where: Any = SCHEMA
        for part in pattern.replace("[]", ".[]").split("."):
            if part == "[]":
                where = where["items"]
            elif part == "*":
                (where,) = where["patternProperties"].values()
            else:
                where = where["properties"][part]
        assert row.text[1:] in where["description"] and EFFECTS[row.effect] in where["description"], pattern


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[daemon]\nmax_running = 4\nrequest_wait_s = 0.5\n[daemon.retention]\ndays = 1.5",
        "[backends.claude]\nenv = { A = 'x' }\nargs = ['-x']\n[backends.mine]\nkind = 'demo'",
        "[[backends.claude.approvals.rules]]\ntool = 'Bash'\ndecision = 'deny'\ncommand = 'rm *'",
    ],
)
def test_what_the_model_takes_the_schema_takes(text: str) -> None:
    raw = tomllib.loads(text)
    parse_config(raw)
    jsonschema.Draft4Validator(SCHEMA).validate(raw)


@pytest.mark.parametrize(
    "text",
    [
        "[deamon]",
        "[daemon]\nmax_running = -1",
        "[daemon]\nrequest_wait_s = 0",
        "[daemon]\non_stop = 'later'",
        "[daemon.retention]\nday = 1",
        "[backends.Claude]",
        "[backends.claude]\ncommand = 'x'",
        "[backends.claude.env]\n'A B' = 'x'",
        "[backends.claude.env]\nA = 5",
        "[[backends.claude.approvals.rules]]\ntool = 'Bash'",
        "[[backends.claude.approvals.rules]]\ntool = 'Bash'\ndecision = 'alow'",
    ],
)
def test_what_the_model_refuses_the_schema_refuses(text: str) -> None:
    raw = tomllib.loads(text)
    with pytest.raises(ConfigurationError):
        parse_config(raw)
    assert not jsonschema.Draft4Validator(SCHEMA).is_valid(raw)


def config(toml: str = "") -> Config:
    return parse_config(tomllib.loads(toml))


def told(old: str, new: str) -> list[tuple[str, str, str]]:
    return [tuple(change) for change in changes(config(old), config(new))]


def test_the_same_is_no_change() -> None:
    text = (
        "[backends.claude]\nenv = { A = 'canary' }\n[[backends.claude.approvals.rules]]\ntool = 'x'\ndecision = 'ask'"
    )
    assert told(text, text) == []
    assert told("", "[daemon]\nmax_queue = 100\n[backends.claude]\nkind = 'claude'\n[backends.codex.env]") == []


def test_each_key_is_told_with_when_it_takes_effect() -> None:
    new = "[daemon]\nsocket = '/x'\nmax_queue = 1\nmax_requests = 1\nretention.days = 1\n[backends.demo.timeouts]\nturn = 1"
    assert told("", new) == [
        ("daemon.socket", "changed", "start"),
        ("daemon.max_queue", "changed", "at_once"),
        ("daemon.max_requests", "changed", "next_connection"),
        ("daemon.retention.days", "changed", "at_once"),
        ("backends.demo.timeouts.turn", "changed", "next_turn"),
    ]


def test_a_backend_that_comes_or_goes_is_one_change() -> None:
    new = "[backends.mine]\nkind = 'demo'\nenv = { A = 'x' }"
    assert told("", new) == [("backends.mine", "added", "at_once")]
    assert told(new, "") == [("backends.mine", "removed", "at_once")]


def test_variables_are_told_by_name_and_never_by_value() -> None:
    old, new = "[backends.demo]\nenv = { A = 'canary', B = 'b' }", "[backends.demo]\nenv = { A = 'other', C = 'c' }"
    found = changes(config(old), config(new))
    assert [(c.key.rpartition(".")[2], c.what) for c in found] == [("A", "changed"), ("C", "added"), ("B", "removed")]
    assert "canary" not in repr(found)
    assert told("", new) == [(f"backends.demo.env.{name}", "added", "next_turn") for name in "AC"]


def test_rules_are_one_value() -> None:
    rule = "[[backends.demo.approvals.rules]]\ntool = '{}'\ndecision = 'deny'\n"
    one, other = rule.format("a"), rule.format("a") + rule.format("b")
    assert told(one, other) == [("backends.demo.approvals.rules", "changed", "next_turn")]


def test_what_cannot_change_stays_and_the_rest_is_new() -> None:
    old, new = config("[daemon]\nsocket = '/a'\nmax_queue = 1"), config("[daemon]\nsocket = '/b'\nmax_queue = 2")
    kept = kept_back(old, new)
    assert (kept.daemon.socket, kept.daemon.max_queue) == ("/a", 2)
    assert [change.key for change in changes(kept, new)] == ["daemon.socket"]
    assert kept.untouched == new.untouched


def test_a_flat_configuration_has_no_value_of_a_variable() -> None:
    secret = config("[backends.demo]\nenv = { A = 'canary' }")
    assert "canary" not in repr(dict(flat(secret)))

"""What differs between two configurations, key by key, and what a running daemon keeps."""

from __future__ import annotations

import tomllib

from clisup.config.keys import changes, flat, kept_back
from clisup.config.model import Config, parse_config


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
    assert kept.defaults == new.defaults


def test_a_flat_configuration_has_no_value_of_a_variable() -> None:
    secret = config("[backends.demo]\nenv = { A = 'canary' }")
    assert "canary" not in repr(dict(flat(secret)))

"""Additions to a configuration file: what its author wrote stays, and what cannot be added by a line is refused."""

from __future__ import annotations

import tomllib

import pytest

from clisup.config.edit import Addition, with_addition

KEY = Addition("claude", "pass_env", ["ANTHROPIC_API_KEY"])
FILE = Addition("claude", "env_files", {"ANTHROPIC_API_KEY": "/k/a b"})


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '[backends.claude]\npass_env = ["ANTHROPIC_API_KEY"]\n'),
        ("# mine", '# mine\n\n[backends.claude]\npass_env = ["ANTHROPIC_API_KEY"]\n'),
        (
            '[backends.claude] # mine\nmode = "live"\n',
            '[backends.claude] # mine\npass_env = ["ANTHROPIC_API_KEY"]\nmode = "live"\n',
        ),
        ('[backends."claude"]\n', '[backends."claude"]\npass_env = ["ANTHROPIC_API_KEY"]\n'),
        (
            '[backends.claude]\npass_env = ["A"] # mine\n',
            '[backends.claude]\npass_env = ["A", "ANTHROPIC_API_KEY"] # mine\n',
        ),
        (
            '[backends.codex]\npass_env = ["A"]\n[backends.claude]\npass_env = []\n',
            '[backends.codex]\npass_env = ["A"]\n[backends.claude]\npass_env = ["ANTHROPIC_API_KEY"]\n',
        ),
        (
            "[backends.claude.live]\nidle_s = 5\n",
            '[backends.claude.live]\nidle_s = 5\n\n[backends.claude]\npass_env = ["ANTHROPIC_API_KEY"]\n',
        ),
        (
            'note = """\n[backends.claude]\n"""\n[backends.claude]\n',
            'note = """\n[backends.claude]\n"""\n[backends.claude]\npass_env = ["ANTHROPIC_API_KEY"]\n',
        ),
    ],
)
def test_a_list_is_added_or_extended_by_one_line(text: str, changed: str) -> None:
    assert with_addition(text, KEY) == changed
    assert with_addition(changed, KEY) == changed, "a second time changes nothing"
    assert tomllib.loads(changed)["backends"]["claude"]["pass_env"][-1] == "ANTHROPIC_API_KEY"


def test_a_table_is_added_or_extended_by_one_line() -> None:
    first = with_addition("", FILE)
    assert first == '[backends.claude]\nenv_files = { ANTHROPIC_API_KEY = "/k/a b" }\n'
    second = with_addition(first, Addition("claude", "env_files", {"OTHER": "/k/o"}))
    assert second is not None
    assert tomllib.loads(second)["backends"]["claude"]["env_files"] == {"ANTHROPIC_API_KEY": "/k/a b", "OTHER": "/k/o"}


def test_a_value_of_the_author_is_not_replaced() -> None:
    text = '[backends.claude]\nenv_files = { ANTHROPIC_API_KEY = "/mine" }\n'
    assert with_addition(text, FILE) == text


@pytest.mark.parametrize(
    "text",
    [
        '[backends.claude]\npass_env = [\n  "A", # mine\n]\n',
        'backends.claude.mode = "live"\n',
        '[backends]\nclaude = { mode = "live" }\n',
        '[backends.claude]\npass_env = "A"\n',
    ],
    ids=["several lines", "dotted", "inline", "no list"],
)
def test_another_form_is_left_to_its_author(text: str) -> None:
    assert with_addition(text, KEY) in (None, text)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", '[defaults]\nbackend = "codex"\n'),
        ("[defaults] # mine\nmode = 'live'\n", "[defaults] # mine\nbackend = \"codex\"\nmode = 'live'\n"),
        ('[defaults]\nbackend = "" # none\n', '[defaults]\nbackend = "codex" # none\n'),
        ("[defaults]\nbackend = 'claude'\n", "[defaults]\nbackend = 'claude'\n"),
        ('defaults = { mode = "live" }\n', None),
    ],
)
def test_a_text_is_added_where_there_is_none(text: str, changed: str | None) -> None:
    addition = Addition(None, "backend", "codex")
    assert with_addition(text, addition) == changed
    assert changed is None or with_addition(changed, addition) == changed

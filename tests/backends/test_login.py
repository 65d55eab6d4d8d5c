"""What adapters may say for `clisup doctor`, and that they need not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from clisup.backends.base import fields_of, login_question, refused_as_root
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.demo import DemoAdapter


class Silent:
    kind = "silent"


def test_an_adapter_that_says_nothing_cannot_tell_refuses_nothing_and_has_its_own_fields() -> None:
    silent = cast("Any", Silent())
    args, env, elsewhere, parse = login_question(silent)
    assert (args, dict(env), elsewhere, parse("logged in", 0)) == ((), {}, "", None)
    assert refused_as_root(silent, {}) == ()
    assert fields_of(silent) == "silent"


@pytest.mark.parametrize(
    ("output", "exit_code", "word"),
    [
        ('{\n  "loggedIn": true,\n  "authMethod": "oauth_token"\n}\n', 0, True),
        ('{\n  "loggedIn": false,\n  "authMethod": "none"\n}\n', 1, False),
        ("error: unknown command 'auth'\n", 1, None),
        ("", -9, None),
    ],
)
def test_claude_says_in_json_whether_it_is_logged_in(output: str, exit_code: int, word: bool | None) -> None:
    assert login_question(ClaudeAdapter()).parse(output, exit_code) is word


@pytest.mark.parametrize(
    ("output", "exit_code", "word"),
    [
        (
            "WARNING: proceeding\nAPI key configured - ***\nAuthentication is checked when you send a request.\n",
            0,
            True,
        ),
        ("Logged in using ChatGPT\n", 0, True),
        ("WARNING: proceeding\nNot logged in\n", 1, False),
        ("error: unrecognized subcommand\n", 2, None),
    ],
)
def test_codex_says_in_words_whether_it_has_a_login_of_its_own(output: str, exit_code: int, word: bool | None) -> None:
    question = login_question(CodexAdapter())
    assert question.parse(output, exit_code) is word
    assert question.args == ("login", "status") and question.elsewhere


def test_claude_refuses_to_skip_permissions_as_root_outside_of_a_sandbox() -> None:
    assert "bypassPermissions" in refused_as_root(ClaudeAdapter(), {"IS_SANDBOX": "true"})
    assert refused_as_root(ClaudeAdapter(), {"IS_SANDBOX": "1"}) == ()


def test_the_demo_needs_no_login_and_minds_no_root() -> None:
    assert login_question(DemoAdapter()).args == ()
    assert refused_as_root(DemoAdapter(), {}) == ()

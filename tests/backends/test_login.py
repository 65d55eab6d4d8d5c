"""What adapters may say for `clisup doctor`, and that they need not."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.backends.base import Adapter, RunEnd
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.demo import DemoAdapter
from clisup.config.model import NO_API


def _unused(*_: Any) -> Any:
    raise NotImplementedError


class Silent(Adapter):
    """Has the required half alone."""

    kind = "silent"
    launch = decoder = parse_version = explain_exit = recovery = _unused
    transcript_pattern = transcript_says = workers = _unused


def test_an_adapter_that_says_nothing_cannot_tell_refuses_nothing_and_has_its_own_fields() -> None:
    silent = Silent()
    assert (silent.login_args, silent.login_env, silent.login_elsewhere, silent.login_keys) == ((), {}, "", None)
    assert silent.parse_login("logged in", 0) is None
    assert (silent.refused_as_root({}), silent.models_flags(NO_API), silent.packages) == ((), (), ())
    assert (silent.fork, silent.seed, silent.presence, silent.compact_prompt(None)) == (None, None, None, None)
    assert silent.repeated(RunEnd(1, None, ""), b"", answered=False) is None
    assert silent.fields == "silent"


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
    assert ClaudeAdapter().parse_login(output, exit_code) is word


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
    codex = CodexAdapter()
    assert codex.parse_login(output, exit_code) is word
    assert codex.login_args == ("login", "status") and codex.login_elsewhere


def test_claude_refuses_to_skip_permissions_as_root_outside_of_a_sandbox() -> None:
    assert "bypassPermissions" in ClaudeAdapter().refused_as_root({"IS_SANDBOX": "true"})
    assert ClaudeAdapter().refused_as_root({"IS_SANDBOX": "1"}) == ()


def test_the_demo_needs_no_login_and_minds_no_root() -> None:
    assert DemoAdapter().login_args == ()
    assert DemoAdapter().refused_as_root({}) == ()

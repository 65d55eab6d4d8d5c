"""How claude is started: what stands in argv, on stdin and in the environment, and what is refused."""

from __future__ import annotations

import dataclasses
import fnmatch
from typing import Any

import pytest

from clisup.backends.base import Adapter, Carried, LaunchRequest, LaunchSpec
from clisup.backends.claude.adapter import PERMISSION_MODES, ClaudeAdapter
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.errors import UsageError

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
REQUEST = LaunchRequest(command=("claude",), prompt="hello", native_session_id=SESSION, resume=False, cwd="/work")
STREAM = (
    "claude", "-p", "--output-format", "stream-json", "--include-partial-messages", "--include-hook-events", "--verbose",
)  # fmt: skip


def launch(**changes: Any) -> LaunchSpec:
    return ClaudeAdapter().launch(dataclasses.replace(REQUEST, **changes))


def test_the_adapter_keeps_the_interface() -> None:
    adapter: Adapter = ClaudeAdapter()
    assert adapter.kind == "claude"
    assert isinstance(adapter.decoder(Carried()), ClaudeDecoder)


@pytest.mark.fault(40)
def test_a_fresh_turn_names_its_session_and_keeps_the_prompt_out_of_argv() -> None:
    spec = launch(prompt="a secret plan")
    assert spec.argv == (*STREAM, "--setting-sources", "user", "--session-id", SESSION)
    assert (spec.stdin, spec.stdin_eof, spec.stdout_mode) == ("a secret plan", True, "pipe")


def test_a_later_turn_resumes_by_the_equals_form() -> None:
    assert launch(resume=True).argv == (*STREAM, "--setting-sources", "user", f"--resume={SESSION}")


def test_everything_that_was_asked_for_stands_before_the_operators_own_arguments() -> None:
    spec = launch(
        command=("/opt/claude", "--debug"),
        model="opus",
        system_prompt_file="/run/prompt",
        mcp_config_file="/run/mcp.json",
        permission_mode="plan",
        args=("--max-turns", "3"),
    )
    assert spec.argv[:2] == ("/opt/claude", "--debug")
    assert spec.argv[len(STREAM) + 1 :] == (
        *("--setting-sources", "user", "--session-id", SESSION, "--model=opus"),
        *("--append-system-prompt-file", "/run/prompt", "--mcp-config", "/run/mcp.json", "--strict-mcp-config"),
        *("--permission-mode", "plan", "--max-turns", "3"),
    )


@pytest.mark.fault(76)
@pytest.mark.parametrize(
    ("sources", "flags"),
    [("user", ["--setting-sources", "user"]), ("", ["--setting-sources", ""]), (None, []),
     ("user,project", ["--setting-sources", "user,project"])],
)  # fmt: skip
def test_what_the_working_directory_brings_is_taken_only_on_purpose(sources: str | None, flags: list[str]) -> None:
    argv = launch(setting_sources=sources).argv
    assert list(argv[len(STREAM) : -2]) == flags


def test_the_cli_chooses_mode_and_model_unless_asked() -> None:
    assert not {"--permission-mode", "--model", "--mcp-config", "--strict-mcp-config"} & set(launch().argv)


@pytest.mark.fault(69)
@pytest.mark.parametrize("prompt", ["/clear", "/cost now", "/etc/passwd is a file"])
def test_a_leading_slash_reaches_the_model_as_text(prompt: str) -> None:
    spec = launch(prompt=prompt)
    assert (spec.stdin, spec.prompt_altered) == ("\n" + prompt, "newline before a leading slash")


@pytest.mark.fault(69)
@pytest.mark.parametrize("prompt", ["hello", " /clear", "\n/clear", "a /b", "@README.md"])
def test_every_other_prompt_is_left_as_it_is_and_mentions_are_switched_off(prompt: str) -> None:
    spec = launch(prompt=prompt)
    assert (spec.stdin, spec.prompt_altered) == (prompt, None)
    assert spec.env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"


@pytest.mark.fault(69)
def test_expansion_is_had_by_asking() -> None:
    spec = launch(prompt="/compact", expand=True)
    assert (spec.stdin, spec.prompt_altered) == ("/compact", None)
    assert "CLAUDE_CODE_DISABLE_FILE_MENTIONS" not in spec.env


def test_the_cli_does_not_update_itself_under_a_session() -> None:
    assert launch().env == {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": ""},
        {"prompt": " \n\t"},
        {"prompt": "a\x00b"},
        {"prompt": "half \ud83d"},
        {"native_session_id": "nope"},
        {"native_session_id": "--dangerously-skip-permissions"},
        {"native_session_id": f"{SESSION}\n"},
        {"native_session_id": None, "resume": True},
        {"model": ""},
        {"model": "a\x00b"},
        {"permission_mode": "yolo"},
        {"permission_mode": "--verbose"},
        {"setting_sources": "user,--verbose"},
        {"setting_sources": "policy"},
        {"system_prompt_file": "--verbose"},
        {"mcp_config_file": "relative.json"},
    ],
)
def test_what_the_cli_could_not_take_or_would_take_for_a_flag_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        launch(**changes)
    assert caught.value.kind == "invalid_params"
    assert caught.value.message.startswith("cannot ")


def test_a_model_that_looks_like_a_flag_stays_a_value() -> None:
    assert "--model=--verbose" in launch(model="--verbose").argv


def test_an_unknown_permission_mode_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        launch(permission_mode="yolo")
    assert all(mode in caught.value.hint for mode in PERMISSION_MODES)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("2.1.329 (Claude Code)\n", "2.1.329"),
        ("warning\n2.1.197 (Claude Code)", "2.1.197"),
        ("2.1.329", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_its_own_line(output: str, version: str | None) -> None:
    assert ClaudeAdapter().parse_version(output) == version


@pytest.mark.parametrize(
    ("env", "root"),
    [({"HOME": "/home/u"}, "/home/u/.claude"), ({"HOME": "/home/u", "CLAUDE_CONFIG_DIR": "/c [1]/"}, "/c [1]")],
)
def test_the_transcript_is_found_in_any_project_folder(env: dict[str, str], root: str) -> None:
    pattern = ClaudeAdapter().transcript_pattern(SESSION, env)
    assert pattern is not None
    assert fnmatch.fnmatch(f"{root}/projects/-work-main/{SESSION}.jsonl", pattern)
    assert not fnmatch.fnmatch(f"{root}/projects/-work-main/other.jsonl", pattern)


def test_no_transcript_is_looked_for_without_a_home_or_under_an_odd_id() -> None:
    assert ClaudeAdapter().transcript_pattern(SESSION, {}) is None
    assert ClaudeAdapter().transcript_pattern("../../etc/*", {"HOME": "/h"}) is None

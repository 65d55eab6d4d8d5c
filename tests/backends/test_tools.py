"""Tools that the session's client runs: how each CLI is told of our MCP server, and that they need no approval."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.claude.adapter import PERMISSION_MODES, ClaudeAdapter
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.exec import CodexExecAdapter
from clisup.backends.codex.protocol import toml_value
from clisup.backends.demo import DemoAdapter
from clisup.backends.qwen.adapter import PERMISSION_MODES as QWEN_MODES
from clisup.backends.qwen.adapter import QwenAdapter
from clisup.errors import UsageError
from clisup.model.lines.framing import Line

TOKEN = "the-sessions-token"
BRIDGE = {
    "type": "stdio",
    "command": sys.executable,
    "args": ["-I", "-S", "/opt/bridge.py", 'it\'s "quoted" \x7f'],
    "env": {"CLISUP_BRIDGE_TOKEN": TOKEN, "ODD": "a'b\"c\n\\"},
    "alwaysLoad": True,
    "timeout": 720_000,
}
ASKED = LaunchRequest(
    command=("cli",),
    prompt="Add.",
    native_session_id=None,
    resume=False,
    cwd="/work",
    mcp_servers={"clisup": BRIDGE},
    mcp_config_file="/run/mcp.json",
    tools=("add", "fail"),
    scratch="/run/scratch",
)


@pytest.mark.parametrize("adapter", [ClaudeAdapter(), DemoAdapter()], ids=lambda adapter: adapter.kind)
@pytest.mark.parametrize("mode", [None, *PERMISSION_MODES])
@pytest.mark.parametrize("live", [False, True])
def test_claude_allows_the_whole_server_in_every_mode_and_nothing_else(
    adapter: ClaudeAdapter, mode: str | None, live: bool
) -> None:
    argv = adapter.launch(replace(ASKED, permission_mode=mode, live=live)).argv
    assert [word for word in argv if "llowed" in word] == ["--allowedTools=mcp__clisup"]


@pytest.mark.parametrize("mode", [None, *QWEN_MODES])
@pytest.mark.parametrize("sources", ["user", "", "project"])
def test_qwen_allows_the_whole_server_too(mode: str | None, sources: str) -> None:
    argv = QwenAdapter().launch(replace(ASKED, permission_mode=mode, setting_sources=sources)).argv
    assert [word for word in argv if "llowed" in word] == ["--allowed-tools=mcp__clisup"]


def test_without_tools_nobody_is_allowed_anything() -> None:
    for adapter in (ClaudeAdapter(), QwenAdapter()):
        assert not [word for word in adapter.launch(replace(ASKED, tools=())).argv if "llowed" in word]


def opened(request: LaunchRequest) -> dict[str, Any]:
    """The settings with which app-server opens its thread."""
    frame = b'{"id":1,"result":{}}'
    (reply,) = CodexAdapter().decoder(Carried(), request).decode(Line(0, len(frame) + 1, frame)).replies
    assert isinstance(reply, str)
    return dict(json.loads(reply)["params"]["config"]["mcp_servers"])


def test_codex_waits_for_our_server_asks_nobody_and_gives_up_after_us() -> None:
    assert opened(ASKED)["clisup"] == {
        "command": BRIDGE["command"],
        "args": BRIDGE["args"],
        "env": BRIDGE["env"],
        "default_tools_approval_mode": "approve",
        "supports_parallel_tool_calls": True,
        "required": True,
        "startup_timeout_sec": 60,
        "tool_timeout_sec": 720.0,
    }


def test_servers_of_the_user_keep_their_own_rules() -> None:
    own = {"command": "x"}
    assert opened(replace(ASKED, mcp_servers={"own": own, "clisup": BRIDGE}))["own"] == own
    assert opened(replace(ASKED, tools=(), mcp_servers={"clisup": own})) == {"clisup": own}


def test_a_server_without_a_time_limit_leaves_codexs_own() -> None:
    plain = {key: value for key, value in BRIDGE.items() if key != "timeout"}
    assert "tool_timeout_sec" not in opened(replace(ASKED, mcp_servers={"clisup": plain}))["clisup"]


def test_argv_of_codex_exec_starts_our_server_and_does_not_hold_its_variables() -> None:
    spec = CodexExecAdapter().launch(ASKED)
    (word,) = [word for word in spec.argv if word.startswith("mcp_servers.")]
    told = tomllib.loads(word)["mcp_servers"]["clisup"]
    assert TOKEN not in " ".join(spec.argv) and TOKEN in spec.files["bridge.py"]
    assert (told["command"], told["args"]) == (sys.executable, ["-I", "-S", "/run/scratch/bridge.py"])
    assert told["required"] and told["default_tools_approval_mode"] == "approve" and "env" not in told


def test_the_file_that_codex_exec_starts_becomes_the_server_with_its_variables(tmp_path: Path) -> None:
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD'], os.environ['KEPT']]))"
    bridge = {**BRIDGE, "args": ["-c", show, 'it\'s "odd"']}
    text = CodexExecAdapter().launch(replace(ASKED, mcp_servers={"clisup": bridge})).files["bridge.py"]
    assert isinstance(text, str)
    (tmp_path / "bridge.py").write_text(text)
    argv = [sys.executable, "-I", "-S", str(tmp_path / "bridge.py")]
    done = subprocess.run(argv, env={**os.environ, "KEPT": "yes"}, capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [['it\'s "odd"'], "a'b\"c\n\\", "yes"]


def test_other_servers_stay_unsupported_in_codex_exec() -> None:
    with pytest.raises(UsageError, match="argv alone"):
        CodexExecAdapter().launch(replace(ASKED, mcp_servers={"own": {"command": "x"}, "clisup": BRIDGE}))
    with pytest.raises(UsageError, match="argv alone"):
        CodexExecAdapter().launch(replace(ASKED, tools=()))


@pytest.mark.parametrize(
    "value", ['a"b\\c\x7f\n', 1, 2.5, True, [1, "x", {"y": []}], {"odd key": {"a.b": "c"}, "list": ["é", False]}]
)
def test_a_value_in_toml_reads_back_as_it_was(value: Any) -> None:
    assert tomllib.loads(f"value = {toml_value(value)}")["value"] == value

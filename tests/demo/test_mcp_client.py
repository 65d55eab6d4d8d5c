"""The demo as a client of MCP servers: what it lists, how it calls, what it allows, and what goes wrong."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.demo.conftest import Demo, Run
from tests.e2e import tool_server
from tests.e2e.tool_server import TOOLS

SERVER = str(Path(tool_server.__file__))
ALLOWED = "--allowedTools=mcp__clisup"


@pytest.fixture
def config(demo: Demo) -> str:
    """A configuration with our server as `clisup`, one that is not there, and one that the demo cannot speak to."""
    own = {"type": "stdio", "command": sys.executable, "args": [SERVER, str(demo.cwd / "log")], "env": {"ODD": "x"}}
    path = demo.cwd / "mcp.json"
    servers = {
        "clisup": own,
        "gone": {"command": "/no/such/server"},
        "web": {"type": "http", "url": "http://127.0.0.1:9"},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return f"--mcp-config={path}"


def log(demo: Demo) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (demo.cwd / "log").read_text().splitlines()]


def results(run: Run) -> list[dict[str, Any]]:
    return [
        block for frame in run.of("user") for block in frame["message"]["content"] if block["type"] == "tool_result"
    ]


def uses(run: Run) -> list[dict[str, Any]]:
    return [
        block for frame in run.of("assistant") for block in frame["message"]["content"] if block["type"] == "tool_use"
    ]


def test_the_init_frame_tells_of_the_servers_and_their_tools(demo: Demo, config: str) -> None:
    (init,) = demo.run("hello", config).of("system", "init")
    assert {server["name"]: server["status"] for server in init["mcp_servers"]} == {
        "clisup": "connected",
        "gone": "failed",
        "web": "failed",
    }
    assert {tool for tool in init["tools"] if tool.startswith("mcp__")} == {f"mcp__clisup__{name}" for name in TOOLS}


def test_a_tool_is_really_called_by_the_id_of_its_block(demo: Demo, config: str) -> None:
    run = demo.run('@mcp add {"a": 2, "b": 3}\nThat was all.', config, ALLOWED)
    (use,), (result,) = uses(run), results(run)
    assert (use["name"], use["input"]) == ("mcp__clisup__add", {"a": 2, "b": 3})
    assert result == {
        "type": "tool_result",
        "content": [{"type": "text", "text": "5"}],
        "is_error": False,
        "tool_use_id": use["id"],
    }
    (call,) = [entry for entry in log(demo) if "call" in entry]
    assert call["meta"]["claudecode/toolUseId"] == use["id"]
    assert (run.code, run.text) == (0, "That was all.")


def test_a_request_of_the_server_is_answered(demo: Demo, config: str) -> None:
    demo.run('@mcp add {"a": 1, "b": 1}', config, ALLOWED)
    assert demo.eventually(lambda: {"answered": "mine", "error": -32601} in log(demo))


def test_what_the_tool_calls_an_error_is_one(demo: Demo, config: str) -> None:
    (result,) = results(demo.run("@mcp mcp__clisup__fail", config, ALLOWED))
    assert (result["content"], result["is_error"]) == ("it went wrong", True)


def test_calls_of_one_message_run_side_by_side(demo: Demo, config: str) -> None:
    run = demo.run("@parallel\n@mcp rendezvous\n@mcp rendezvous\n@end", config, ALLOWED)
    assert [result["content"][0]["text"] for result in results(run)] == ["met", "met"]
    assert {result["tool_use_id"] for result in results(run)} == {use["id"] for use in uses(run)}


def test_an_image_comes_as_claude_shows_it(demo: Demo, config: str) -> None:
    (result,) = results(demo.run("@mcp picture", config, ALLOWED))
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["content"][1]["source"]["media_type"] == "image/png"


@pytest.mark.parametrize("name", ["mcp__clisup__nothing", "mcp__other__add", "nothing"])
def test_a_tool_that_is_not_there_is_an_error_for_the_model(demo: Demo, config: str, name: str) -> None:
    (result,) = results(demo.run(f"@mcp {name}", config, ALLOWED))
    assert result["is_error"] and "No such tool available" in result["content"]


def test_without_servers_there_is_no_tool(demo: Demo) -> None:
    (result,) = results(demo.run("@mcp add"))
    assert result["is_error"] and "No such tool available: mcp__clisup__add" in result["content"]


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        ((), False),
        ((ALLOWED,), True),
        (("--allowed-tools", "mcp__clisup__*"), True),
        (("--allowedTools", "Bash", "--allowedTools=Read,mcp__clisup__writes"), True),
        (("--allowedTools", "mcp__clisup__add"), False),
        ((ALLOWED, "--permission-mode", "plan"), False),
        ((ALLOWED, "--permission-mode", "dontAsk"), True),
        (("--permission-mode", "dontAsk"), False),
        (("--permission-mode", "acceptEdits"), False),
    ],
)
def test_a_tool_runs_where_a_rule_names_it_or_its_server(
    demo: Demo, config: str, flags: tuple[str, ...], runs: bool
) -> None:
    run = demo.run("@mcp writes", config, *flags)
    assert [result["is_error"] for result in results(run)] == [not runs]
    assert bool(run.results[-1]["permission_denials"]) is not runs
    assert bool(run.of("system", "permission_denied")) is not runs


def test_plan_mode_lets_tools_run_that_only_read(demo: Demo, config: str) -> None:
    (result,) = results(demo.run('@mcp add {"a": 1, "b": 1}', config, ALLOWED, "--permission-mode", "plan"))
    assert not result["is_error"]


def test_a_live_process_asks_where_no_rule_names_the_tool(demo: Demo, config: str) -> None:
    talk = demo.live(config)
    talk.say('@mcp add {"a": 1, "b": 1}')
    assert talk.asked()["tool_name"] == "mcp__clisup__add"
    talk.answer("allow", updatedInput={"a": 40, "b": 2})
    talk.until("result")
    (result,) = results(talk.end())
    assert result["content"] == [{"type": "text", "text": "42"}]


def test_a_live_process_asks_nobody_where_a_rule_names_it_and_keeps_its_servers(demo: Demo, config: str) -> None:
    talk = demo.live(config, ALLOWED)
    for number in (1, 2):
        talk.say(f'@mcp add {{"a": {number}, "b": 0}}')
        talk.until("result")
    run = talk.end()
    assert [result["content"][0]["text"] for result in results(run)] == ["1", "2"]
    assert not run.of("control_request") and len([entry for entry in log(demo) if "call" in entry]) == 2


@pytest.mark.parametrize("how", ["interrupt", "signal"])
def test_a_call_that_is_interrupted_is_cancelled(demo: Demo, config: str, how: str) -> None:
    talk = demo.live(config, ALLOWED)
    talk.say("@mcp hang")
    talk.calls()
    while not (demo.cwd / "log").exists() or not any("call" in entry for entry in log(demo)):
        assert talk.process.poll() is None
    if how == "interrupt":
        talk.ask("interrupt")
        talk.until("result")
    run = talk.end(None if how == "interrupt" else signal.SIGINT)
    (result,) = results(run)
    assert result["is_error"] and run.results[-1]["terminal_reason"] == "aborted_tools"
    assert demo.eventually(lambda: bool([entry for entry in log(demo) if "cancelled" in entry]))


def test_a_server_that_dies_fails_the_call_and_all_later_ones(demo: Demo, config: str) -> None:
    run = demo.run('@mcp bye\n@mcp add {"a": 1, "b": 1}\nStill here.', config, ALLOWED)
    assert [(result["content"], result["is_error"]) for result in results(run)] == [
        ("MCP error -32000: Connection closed", True)
    ] * 2
    assert (run.code, run.text) == (0, "Still here.")


def test_a_server_that_talks_nonsense_is_failed(demo: Demo) -> None:
    nonsense = 'import sys; print("{broken"); print("[]"); print(\'{"id": true}\'); sys.stdout.flush(); sys.exit(0)'
    config = {"mcpServers": {"odd": {"command": sys.executable, "args": ["-c", nonsense]}, "odder": []}}
    (init,) = demo.run("hello", f"--mcp-config={json.dumps(config)}").of("system", "init")
    assert [server["status"] for server in init["mcp_servers"]] == ["failed", "failed"]


def test_it_understands_the_official_server(demo: Demo) -> None:
    """The `mcp` package as the other side, which is strict about what a client may say."""
    server = (
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('official')\n"
        "@server.tool()\n"
        "def add(a: int, b: int) -> int:\n    return a + b\n"
        "server.run()\n"
    )
    config = {"mcpServers": {"official": {"command": sys.executable, "args": ["-c", server]}}}
    run = demo.run(
        '@mcp mcp__official__add {"a": 2, "b": 3}', f"--mcp-config={json.dumps(config)}", "--allowedTools=mcp__official"
    )
    (result,) = results(run)
    assert not result["is_error"] and result["content"][0]["text"] == "5"


def test_a_call_that_takes_long_is_said_to_go_on_and_is_no_task(demo: Demo, config: str) -> None:
    talk = demo.live(config, ALLOWED)
    talk.say("@heartbeat 0.01\n@mcp hang")
    progress = talk.until("tool_progress")
    talk.ask("interrupt")
    talk.until("result")
    run = talk.end()
    assert [use["id"] for use in uses(run)] == [progress["parent_tool_use_id"]]
    assert not run.of("system", "task_started") and not run.of("system", "task_notification")

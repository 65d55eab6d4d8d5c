"""The acp backend through the whole daemon, with an agent built on the protocol's official SDK (tests/daemon/acp_agent.py)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe

AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
BACKENDS = {
    "agent": [],
    "late": ["--replay-late"],
    "resume": ["--resume"],
    "forgetful": ["--no-load"],
    "options": ["--options", "--mcp-http"],
    "login": ["--login"],
    "by_key": ["--login"],
    "by_browser": ["--login"],
    "by_magic": ["--login"],
    "mute": ["--mute"],
}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def tables() -> str:
    """One backend for each way in which the agent is started."""
    text = ""
    for name, flags in BACKENDS.items():
        startup = 1 if name == "mute" else 30
        text += f'[backends.{name}]\nkind = "acp"\ncommand = {json.dumps([*AGENT, *flags])}\n'
        if name.startswith("by_"):
            text += f'auth_method = "{name.removeprefix("by_")}"\n'
        text += f"[backends.{name}.timeouts]\nstartup = {startup}\nmodel_idle = 60\nterm_grace = 1\n"
    return text + '[[backends.agent.approvals.rules]]\ntool = "delete"\ndecision = "deny"\n'


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    daemon = Harness(raw=tables())
    daemon.start()
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def everything(daemon: Harness) -> SessionProbe:
    """One turn with most of what an agent can tell: each process of the SDK takes a second to start."""
    session = daemon.new(backend="agent")
    session.ask(
        """think Hm
say Hello,
tool a Read {"path": "/a"}
late b Read {"path": "/b"}
say Asked:
ask t1
fs /etc/passwd
extension
plan
cost 0.25
usage {"total_tokens": 37, "input_tokens": 10, "output_tokens": 5, "cached_read_tokens": 20, "thought_tokens": 2}
say Bye."""
    )
    return session


def test_a_turn_is_told_as_any_other_backend_tells_it(everything: SessionProbe) -> None:
    told = [e["type"] for e in everything.events() if e["source"] == "backend"]
    tool = ["tool_progress", "tool_progress", "tool_result"]
    assert told[: told.index("approval_requested")] == [
        "session_init", "message_start", "content_delta", "content_delta", "message", "message_stop", "tool_use", *tool,
        "tool_use", *tool[1:], "message_start", "content_delta", "message", "message_stop", "tool_use",
    ]  # fmt: skip
    (end,), (first, *_, last) = everything.events("turn_completed"), everything.events("message")
    assert (end["outcome"], end["stop_reason"]) == ("completed", "end_turn")
    assert end["text"] == last["blocks"][0]["text"] == "chosen: norefused with -32601refused with -32601Bye."
    assert [block["kind"] for block in first["blocks"]] == ["thinking", "text"]
    assert first["message_id"] != last["message_id"]
    init = everything.events("session_init")[0]
    assert (init["backend_version"], init["permission_mode"]) == ("1.2.3", "ask")
    assert [e["detail"] for e in everything.events("status", status="plan")] == ["[completed] look"]


def test_a_tool_is_told_once_when_its_input_is_known_and_its_result_holds_text_and_the_change(
    everything: SessionProbe,
) -> None:
    first, second, refused = everything.events("tool_use")
    assert [first["input"], second["input"], refused["input"]] == [{"path": "/a"}, {"path": "/b"}, {"path": "/x"}]
    results = everything.events("tool_result")
    assert [result["tool_use_id"] for result in results] == ["a", "b"]  # the refused one got none, and none is invented
    assert (results[0]["content"], results[0]["is_error"]) == ("read", False)
    assert results[0]["blocks"][1]["native_kind"] == "diff"
    assert results[0]["blocks"][1]["input"] == {"path": "/a", "oldText": "old", "newText": "new"}


def test_what_needs_a_permission_is_refused_and_told(everything: SessionProbe) -> None:
    (asked,), (denied,) = everything.events("approval_requested"), everything.events("approval_resolved")
    (end,) = everything.events("turn_completed")
    assert (asked["tool_use_id"], asked["tool_name"], end["denied"]) == ("t1", "delete", ["delete"])
    assert (denied["decision"], denied["by"]) == ("deny", "rule")


def test_whatever_else_the_agent_asks_is_refused_so_that_it_never_waits(everything: SessionProbe) -> None:
    refused = [e["detail"] for e in everything.events("status", status="request_refused")]
    assert refused == ["fs/read_text_file", "_tests/unheard_of"]


def test_usage_and_cost_are_what_the_agent_says(everything: SessionProbe) -> None:
    (end,) = everything.events("turn_completed")
    assert end["usage"] == {
        "input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 7, "reasoning_tokens": 2, "source": "reported"
    }  # fmt: skip
    assert end["cost_usd"] == 0.25


@pytest.mark.parametrize("backend", ["late", "resume"])
def test_a_second_prompt_goes_on_with_the_session_and_its_history_is_not_told_again(
    daemon: Harness, backend: str
) -> None:
    session = daemon.new(backend=backend)
    first = session.ask("say hi\ncost 0.25")
    again = session.ask("remember\ncost 0.75")
    assert (again["outcome"], again["text"]) == ("completed", "say hi\ncost 0.25")
    assert "an old answer" not in json.dumps(session.events())
    assert not session.events("tool_use")
    one, two = session.events("session_init")
    assert one["native_session_id"] == two["native_session_id"] == session.get()["native_session_id"]
    assert (first["cost_usd"], again.get("cost_usd")) == (0.25, None)  # of the session, or of the process? nobody says
    assert again["usage"] == {"source": "unknown"}


def test_an_agent_that_cannot_load_sessions_fails_the_second_turn_with_the_reason(daemon: Harness) -> None:
    session = daemon.new(backend="forgetful")
    assert session.ask("say one")["outcome"] == "completed"
    second = session.ask("say two")
    assert (second["outcome"], second["error"]["kind"]) == ("failed", "session_not_found")
    assert "neither session/resume nor session/load" in second["error"]["message"]


def test_an_unknown_session_is_session_not_found(daemon: Harness) -> None:
    turn = daemon.new(backend="agent", resume_native_id=UNKNOWN).ask("say hello")
    assert turn["error"]["kind"] == "session_not_found"


def test_model_mode_and_mcp_servers_reach_the_agent_before_the_prompt(daemon: Harness) -> None:
    servers = {"a": {"command": "/bin/a", "args": ["-x"], "env": {"K": "v"}}, "b": {"type": "http", "url": "http://x"}}
    mcp = {"mcpServers": servers}
    session = daemon.new(backend="options", model="Large", permission_mode="allow", mcp_config=mcp)
    assert session.ask("settings")["text"] == "large allow 2"
    init = session.events("session_init")[0]
    assert (init["model"], init["permission_mode"]) == ("large", "allow")


def test_a_mode_that_the_agent_lacks_fails_the_turn_and_names_those_it_has(daemon: Harness) -> None:
    turn = daemon.new(backend="agent", permission_mode="yolo").ask("say hello")
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "invalid_request")
    assert "it has: ask, allow, plan-only" in turn["error"]["message"]


def test_an_agent_that_is_not_logged_in_is_an_authentication_failure(daemon: Harness) -> None:
    turn = daemon.new(backend="login").ask("say hello")
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "authentication")
    ways = "set the backend's auth_method: key (takes the key in $HOME), browser (Log in with a browser)"
    assert turn["error"]["message"].endswith(f"give its key in the backend's env, or {ways}")


def test_an_agent_is_logged_in_by_the_method_of_its_table_at_each_start(daemon: Harness) -> None:
    session = daemon.new(backend="by_key")
    assert session.ask("say hello")["text"] == "hello"
    assert session.ask("remember")["text"] == "say hello"


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("by_browser", "the agent refused authenticate: There is no browser; "),
        ("by_magic", "cannot log in at the agent by 'magic', because it has no such method; it has: key (takes"),
    ],
)
def test_a_login_that_fails_is_an_authentication_failure(daemon: Harness, backend: str, reason: str) -> None:
    turn = daemon.new(backend=backend).ask("say hello")
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "authentication")
    assert turn["error"]["message"].startswith(reason)


def test_a_login_method_for_a_cli_without_them_is_refused_at_the_start(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False, raw='[backends.claude]\nkind = "claude"\nauth_method = "key"\n')
    assert daemon.launch().wait(30) == 78
    assert "backends.claude.auth_method, because the kind claude has no login methods" in daemon.log.read_text()


def test_an_agent_without_system_prompts_fails_a_turn_that_has_one(daemon: Harness) -> None:
    turn = daemon.new(backend="agent", system_prompt="Be brief.").ask("say hello")
    assert (turn["outcome"], turn["error"]["kind"]) == ("failed", "invalid_request")
    assert "cannot give the agent a system prompt" in turn["error"]["message"]


def test_an_error_in_the_middle_keeps_what_was_said(daemon: Harness) -> None:
    session = daemon.new(backend="agent")
    turn = session.ask('say Half\nerror -32603 Internal_error {"details": "429 Rate limit reached", "retryAfter": 7}')
    assert (turn["error"]["kind"], turn["error"]["retryable"], turn["error"]["retry_after_s"]) == (
        "rate_limit",
        True,
        7,
    )
    assert session.events("message")[0]["blocks"][0]["text"] == "Half"


def test_an_interrupt_cancels_by_request_and_what_was_said_stays(daemon: Harness) -> None:
    session = daemon.new(backend="agent")
    turn = session.prompt("say Half\nhang\nsay never")
    session.await_event("content_delta")
    session.call("interrupt")
    end = session.end_of(turn)
    assert (end["outcome"], end["stop_reason"]) == ("interrupted", "cancelled")
    assert session.events("message")[0]["blocks"][0]["text"] == "Half"
    exited = session.await_event("process_exited")
    assert (exited["exit_code"], exited.get("signal")) == (0, None)  # no signal was needed


def test_an_agent_that_is_killed_takes_its_tools_with_it(daemon: Harness) -> None:
    session = daemon.new(backend="agent")
    turn = session.prompt("child 600")
    session.await_event("tool_use")
    session.call("interrupt", mode="kill")
    assert session.end_of(turn)["outcome"] == "interrupted"
    assert not session.events("tool_result")
    assert session.await_event("process_exited")["signal"] == 9
    until(lambda: not daemon.leftovers(), "the sleeper is gone")


def test_an_agent_that_never_answers_initialize_is_ended_by_the_watchdog(daemon: Harness) -> None:
    turn = daemon.new(backend="mute").ask("say hello")
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "startup_timeout")


def test_a_daemon_that_comes_back_goes_on_with_the_dialogue(serve: Callable[..., Harness]) -> None:
    session = serve(raw=tables()).new(backend="agent")
    turn = session.prompt("say One.\nhang")
    session.await_event("content_delta")
    session.daemon.restart()
    session.call("interrupt")
    assert session.end_of(turn)["stop_reason"] == "cancelled"
    assert len(session.events("session_init")) == 1
    assert session.events("message")[0]["blocks"][0]["text"] == "One."


def test_an_agent_without_a_command_is_refused_at_the_start(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False, raw='[backends.agent]\nkind = "acp"\n')
    process = daemon.launch()
    assert process.wait(30) == 78
    assert "backends.agent" in daemon.log.read_text()

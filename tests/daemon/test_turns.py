"""A turn from its prompt to its end: what streams, what is counted, and what the CLI gets to see."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest
from harness import Harness, until
from session_probe import SessionProbe


@pytest.fixture
def session(daemon: Harness) -> SessionProbe:
    return daemon.new()


def test_an_answer_streams_before_it_is_whole(daemon: Harness, session: SessionProbe) -> None:
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0)
        session.prompt("Hello there.\n@stream 20\n")
        events = wire.events_until("turn_completed")
    types = [event["type"] for event in events]
    assert types.index("content_delta") < types.index("message") < types.index("turn_completed")
    order = ["prompt_accepted", "turn_started", "process_started", "session_init", "message_start", "process_exited"]
    assert [types.index(type_) for type_ in order] == sorted(types.index(type_) for type_ in order)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert session.chunks() == list(range(20))
    assert events[-1]["outcome"] == "completed" and "chunk 000019" in events[-1]["text"]


def test_a_wait_gives_the_whole_result(session: SessionProbe) -> None:
    result = session.ask('just this\n@usage 120 7\n@cost 0.5\n@structured {"a": [1]}')
    assert result["outcome"] == "completed" and result["text"] == "just this"
    assert result["usage"]["input_tokens"] == 120 and result["usage"]["output_tokens"] == 7
    assert result["usage"]["source"] == "reported" and result["cost_usd"] == 0.5
    assert result["structured"] == {"a": [1]}


def test_a_tool_is_seen_with_its_result(session: SessionProbe) -> None:
    session.ask("@bash echo from-the-shell")
    use, result = session.events("tool_use")[0], session.events("tool_result")[0]
    assert use["name"] == "Bash" and use["input"]["command"] == "echo from-the-shell"
    assert result["tool_use_id"] == use["tool_use_id"]
    assert result["content"] == "from-the-shell" and not result["is_error"]


def test_parallel_tools_keep_their_results_apart(session: SessionProbe) -> None:
    session.ask("@parallel\n@tool A {} => first\n@tool B {} => second\n@end")
    names = {event["tool_use_id"]: event["name"] for event in session.events("tool_use")}
    assert {names[e["tool_use_id"]]: e["content"] for e in session.events("tool_result")} == {
        "A": "first",
        "B": "second",
    }


def test_denied_tools_are_named_at_the_turns_end(session: SessionProbe) -> None:
    result = session.ask('@denied Write {"file_path": "x", "content": "y"}')
    assert result["outcome"] == "completed" and result["denied"] == ["Write"]
    assert session.events("turn_completed")[0]["denied"] == ["Write"]


@pytest.mark.fault(75)
def test_usage_and_cost_are_of_one_turn_also_in_the_third(session: SessionProbe) -> None:
    for turn, cost in enumerate((0.25, 0.5, 0.125), 1):
        result = session.ask(f"@usage {turn}00 {turn}\n@cost {cost}")
        assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (turn * 100, turn)
        assert result["cost_usd"] == pytest.approx(cost)
    row = session.get()
    assert row["cost_usd"] == pytest.approx(0.875) and row["tokens"]["input_tokens"] == 600


def test_a_session_remembers_its_turns(session: SessionProbe) -> None:
    session.ask("the first words")
    assert "the first words" in session.ask("@recall")["text"]
    assert "3" in session.ask("@count")["text"]


def test_the_native_session_id_is_the_sessions(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    session = daemon.new(session_id=wanted)
    assert session.id == wanted
    session.ask("hello")
    assert session.get()["native_session_id"] == wanted


def test_the_model_is_passed_on(daemon: Harness) -> None:
    session = daemon.new(model="demo-large")
    session.ask("hello")
    assert session.events("session_init")[0]["model"] == session.get()["model"] == "demo-large"


@pytest.mark.fault(40)
def test_prompt_system_prompt_and_servers_never_stand_in_argv(daemon: Harness, tmp_path: Path) -> None:
    secret = f"private-{uuid.uuid4()}"
    servers = {"mcpServers": {"tool": {"command": "x", "env": {"TOKEN": f"{secret}-mcp"}}}}
    session = daemon.new(system_prompt=f"{secret}-system", mcp_config=servers)
    turn = session.prompt(f"{secret}-prompt\n@wait-file {tmp_path}/go")
    argv = Path(f"/proc/{session.cli()}/cmdline").read_bytes().decode().split("\0")
    for pid in [*session.processes(), session.keeper()]:
        assert secret not in Path(f"/proc/{pid}/cmdline").read_text()
    system = argv[argv.index("--append-system-prompt-file") + 1]
    mcp = argv[argv.index("--mcp-config") + 1]
    assert Path(system).read_text() == f"{secret}-system" and json.loads(Path(mcp).read_text()) == servers
    assert os.stat(os.path.dirname(mcp)).st_mode & 0o777 == 0o700 and os.stat(mcp).st_mode & 0o777 == 0o600
    assert secret not in json.dumps(session.events("process_started"))
    (tmp_path / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"


@pytest.mark.fault(69)
def test_a_leading_slash_reaches_the_model_as_text_unless_expansion_is_asked_for(session: SessionProbe) -> None:
    session.ask("/compact this")
    session.ask("/compact that", expand=True)
    session.ask("plain")
    assert [bool(event.get("prompt_altered")) for event in session.events("turn_started")] == [True, False, False]
    assert "/compact this" in session.events("turn_completed")[0]["text"]


@pytest.mark.fault(63)
@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "context", "model_not_found"])
def test_a_failure_of_the_api_is_a_failed_turn_of_that_kind(session: SessionProbe, kind: str) -> None:
    error = session.ask(f"some text\n@error {kind}")
    assert error["outcome"] == "failed"
    assert error["error"]["kind"] == {"context": "context_overflow"}.get(kind, kind)


@pytest.mark.fault(14)
@pytest.mark.fault(71)
@pytest.mark.parametrize("way", ["@exit 0", "@exit 3", "@crash"])
def test_an_exit_without_a_result_is_a_crash(session: SessionProbe, way: str) -> None:
    result = session.ask(f"half an answer\n@stderr the last words\n{way}")
    assert (result["outcome"], result["error"]["kind"]) == ("failed", "crashed")
    assert "the last words" in result["error"]["message"]


@pytest.mark.fault(6)
def test_a_signal_and_the_exit_code_that_looks_like_one_are_told_apart(session: SessionProbe) -> None:
    session.ask("@die SEGV")
    session.ask("@exit 139")
    first, second = session.events("process_exited")
    assert (first.get("signal"), first.get("exit_code")) == (11, None)
    assert (second.get("signal"), second.get("exit_code")) == (None, 139)


@pytest.mark.fault(65)
def test_text_that_was_taken_back_is_retracted(session: SessionProbe) -> None:
    result = session.ask("@cut\nthe real answer")
    types = session.types()
    assert "retracted" in types and types.index("content_delta") < types.index("retracted")
    assert result["text"].endswith("the real answer")
    assert result["text"] == session.events("message")[-1]["blocks"][-1]["text"] or "This text stays" in result["text"]


@pytest.mark.fault(9)
def test_a_process_that_holds_stdout_does_not_hold_the_turn(session: SessionProbe) -> None:
    assert session.ask("@orphan holds-stdout 60")["outcome"] == "completed"
    exited = session.events("process_exited")[0]
    assert len(exited["survivors"]) == 1 and exited["exit_code"] == 0
    until(lambda: not session.processes())


@pytest.mark.fault(67)
def test_a_session_that_the_cli_does_not_know_is_said_so(daemon: Harness) -> None:
    session = daemon.new(resume_native_id=str(uuid.uuid4()))
    assert session.ask("hello")["error"]["kind"] == "session_not_found"
    assert session.ask("start anew")["outcome"] == "completed"


@pytest.mark.fault(68)
def test_a_turn_that_left_no_transcript_is_not_resumed(session: SessionProbe) -> None:
    assert session.ask("@no-transcript\n@die KILL")["outcome"] == "failed"
    assert session.ask("again")["outcome"] == "completed"

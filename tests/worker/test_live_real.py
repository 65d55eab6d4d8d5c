"""A live worker: several turns in one process, interrupts, steering, permissions, and what else its stdin can ask for."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from clisup.model.events import ApprovalRequested, PermissionDenied, SessionInit, ToolResult
from tests.worker.driver import Worker, eventually, mcp_config, worker
from tests.worker.fake_api import APIS, FakeApi, Pause, Raw, Reply, Stall, answer, call, partial, refuse, say, steps

each_api = pytest.mark.parametrize("api", APIS)
ALLOWED = ("--allowedTools", "mcp__clisup")
ONE, TWO, THREE = (f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2, 3))
DONE = answer(say("Done."))


def states(process: Worker, prompt_id: str) -> list[str]:
    return [f["state"] for f in process.frames if f["type"] == "command_lifecycle" and f["command_uuid"] == prompt_id]


def idle(process: Worker, count: int = 1) -> None:
    process.wait(lambda frame: frame.get("subtype") == "session_state_changed" and frame["state"] == "idle", count)


def question(process: Worker, count: int = 1) -> dict[str, Any]:
    return process.wait(lambda frame: frame["type"] == "control_request", count)


def in_tool(process: Worker, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    eventually(lambda: calls.exists() and '"call"' in calls.read_text(), "a call")


@each_api
def test_one_process_has_one_turn_after_the_other(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("One.")), answer(say("Two."))) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("First.", ONE)
        idle(process)
        process.say("Second.", TWO)
        idle(process, 2)
        assert process.end() == 0
    assert [terminal.text for terminal in process.terminals] == ["One.", "Two."]
    assert [terminal.prompts for terminal in process.terminals] == [(ONE,), (TWO,)]
    assert states(process, ONE) == states(process, TWO) == ["queued", "started", "completed"]
    assert len(process.events(SessionInit)) == 2


def test_the_usage_of_a_turn_is_its_own(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("One."))) as fake, worker(fake, tmp_path, live=True) as process:
        for count in (1, 2):
            process.say()
            process.result(count)
        process.end()
    assert [terminal.usage.output_tokens for terminal in process.terminals] == [40, 41]


@each_api
def test_an_interrupt_in_the_stream_keeps_the_text_and_the_process(api: str, tmp_path: Path) -> None:
    with FakeApi(api, partial(say("Half an"), Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("Question.", ONE)
        process.wait("Half an")
        assert process.control("interrupt", cancel_queued=True) == {
            "request_id": process.wait("still_queued")["response"]["request_id"],
            "subtype": "success",
            "response": {"still_queued": [], "cancelled": []},
        }
        process.result()
        process.say("Go on.", TWO)
        process.result(2)
        assert process.end() == 0
    first, second = process.terminals
    assert first.interrupted and first.error is not None and first.error.kind == "cancelled"
    assert second.text == "Done."
    assert states(process, ONE) == ["queued", "started", "cancelled"]
    sent = json.dumps(fake.bodies[1])
    assert "Half an" in sent and "[Request interrupted by user]" in sent


def test_an_interrupt_before_the_first_word_keeps_the_process(tmp_path: Path) -> None:
    with FakeApi("chat", steps(Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say()
        eventually(lambda: fake.bodies)
        process.control("interrupt")
        process.result()
        process.say("Again.")
        process.result(2)
        process.end()
    assert [terminal.interrupted for terminal in process.terminals] == [True, False]


@each_api
def test_an_interrupt_in_a_tool_tells_the_model_and_the_tool(api: str, tmp_path: Path) -> None:
    calls = answer(call("mcp__clisup__add", a=1, b=2), call("mcp__clisup__hang"))
    with (
        FakeApi(api, calls, DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path), *ALLOWED, live=True) as process,
    ):
        process.say("Use tools.")
        process.wait('"content":[{"type":"text","text":"3"}]')
        in_tool(process, tmp_path)
        process.control("interrupt")
        process.result()
        process.say("Go on.")
        process.result(2)
        process.end()
    assert process.terminals[0].interrupted
    assert [result.is_error for result in process.events(ToolResult)] == [False, True]
    sent = json.dumps(fake.bodies[1])
    assert "interrupted by user for tool use" in sent and "No result" not in sent
    eventually(lambda: "cancelled" in (tmp_path / "calls").read_text(), "the cancellation")


def test_an_interrupt_takes_what_waits_with_it_where_that_is_asked_for(tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("One.", ONE)
        process.wait("Half")
        process.say("Two.", TWO)
        assert process.control("interrupt", cancel_queued=True)["response"]["cancelled"] == [TWO]
        idle(process)
        process.end()
    assert states(process, TWO) == ["queued", "cancelled"]
    assert len(fake.bodies) == 1


def test_without_that_what_waits_has_its_turn(tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("One.", ONE)
        process.wait("Half")
        process.say("Two.", TWO)
        assert process.control("interrupt")["response"] == {"still_queued": [TWO]}
        idle(process)
        process.end()
    assert process.terminals[1].text == "Done."


@each_api
def test_a_message_that_comes_while_a_tool_runs_goes_with_its_result(api: str, tmp_path: Path) -> None:
    args = (*mcp_config(tmp_path), "--permission-mode", "default")
    with (
        FakeApi(api, answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake,
        worker(fake, tmp_path, *args, live=True) as process,
    ):
        process.say("Add.", ONE)
        asked = question(process)
        process.say("And be quick.", TWO)
        process.wait(lambda frame: frame["type"] == "command_lifecycle" and frame["command_uuid"] == TWO)
        process.reply(asked, behavior="allow")
        process.result()
        idle(process)
        process.end()
    [terminal] = process.terminals
    assert terminal.prompts == (ONE, TWO)
    assert "And be quick." in json.dumps(fake.bodies[1])
    assert states(process, TWO) == ["queued", "started", "completed"]


def test_a_message_for_now_ends_the_running_turn_and_has_the_next(tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("One.", ONE)
        process.wait("Half")
        process.say("Two.", TWO)
        process.say("Now!", THREE, priority="now")
        process.result(3)
        process.end()
    assert [terminal.prompts for terminal in process.terminals] == [(ONE,), (THREE,), (TWO,)]
    assert process.terminals[0].text == "Half" and not process.terminals[0].is_error


def test_a_message_for_later_waits_for_its_own_turn(tmp_path: Path) -> None:
    with (
        FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake,
        worker(fake, tmp_path, *mcp_config(tmp_path), live=True) as process,
    ):
        process.say("One.", ONE)
        asked = question(process)
        process.say("Later.", TWO, priority="later")
        process.reply(asked, behavior="allow")
        process.result(2)
        process.end()
    assert [terminal.prompts for terminal in process.terminals] == [(ONE,), (TWO,)]


def test_a_message_that_waits_can_be_withdrawn_and_one_that_comes_twice_counts_once(tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall()), DONE) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("One.", ONE)
        process.wait("Half")
        process.say("Two.", TWO)
        process.say("Two.", TWO)
        assert process.control("cancel_async_message", message_uuid=TWO)["response"] == {"cancelled": True}
        assert process.control("cancel_async_message", message_uuid=TWO)["response"] == {"cancelled": False}
        process.control("interrupt")
        idle(process)
        process.end()
    assert states(process, TWO) == ["queued", "cancelled"]
    assert len(process.terminals) == 1


def test_model_and_permission_mode_change_between_turns(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."))) as fake, worker(fake, tmp_path, live=True) as process:
        process.say()
        process.result()
        assert process.control("set_model", model="other")["response"] == {"model": "other"}
        assert process.control("set_permission_mode", mode="plan")["response"] == {"mode": "plan"}
        assert process.control("set_permission_mode", mode="none")["subtype"] == "error"
        assert process.control("set_model", model=7)["subtype"] == "error"
        assert process.control("fly")["error_code"] == "unsupported_request"
        process.say()
        process.result(2)
        process.end()
    assert [body["model"] for body in fake.bodies] == ["fake-model", "other"]
    last = process.events(SessionInit)[-1]
    assert (last.model, last.permission_mode) == ("other", "plan")


def asks(tmp_path: Path, fake: FakeApi) -> Any:
    return worker(fake, tmp_path, *mcp_config(tmp_path), live=True)


def test_a_tool_that_is_allowed_runs_with_the_input_of_the_answer(tmp_path: Path) -> None:
    with FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        asked = question(process)
        process.wait(lambda frame: frame.get("state") == "requires_action")
        process.reply(asked, behavior="allow", updatedInput={"a": 5, "b": 5})
        process.result()
        process.end()
    assert [result.content for result in process.events(ToolResult)] == ["10"]
    [approval] = process.events(ApprovalRequested)
    assert (approval.tool_name, approval.input) == ("mcp__clisup__add", {"a": 1, "b": 2})


def test_a_tool_that_is_denied_is_told_to_the_model_and_listed(tmp_path: Path) -> None:
    with FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        process.reply(question(process), behavior="deny", message="Not today.")
        process.result()
        process.end()
    assert [(result.content, result.is_error) for result in process.events(ToolResult)] == [("Not today.", True)]
    assert [(d.name, d.reason) for d in process.events(PermissionDenied)] == [("mcp__clisup__add", "Not today.")]
    assert process.terminals[0].text == "Done." and process.terminals[0].denied == ("mcp__clisup__add",)


def test_a_denial_that_interrupts_ends_the_turn(tmp_path: Path) -> None:
    with FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        process.reply(question(process), behavior="deny", message="Stop.", interrupt=True)
        process.result()
        process.end()
    assert process.terminals[0].interrupted and len(fake.bodies) == 1


def test_a_tool_that_is_always_allowed_is_asked_about_once_and_questions_come_one_at_a_time(tmp_path: Path) -> None:
    calls = answer(call("mcp__clisup__add", a=1, b=2), call("mcp__clisup__add", a=3, b=4))
    with FakeApi("chat", calls, calls, DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        asked = question(process)
        process.reply(asked, behavior="allow", updatedPermissions=asked["request"]["permission_suggestions"])
        process.result()
        process.end()
    assert len(process.events(ApprovalRequested)) == 1
    assert sorted(result.content for result in process.events(ToolResult)) == ["3", "3", "7", "7"]


def test_an_interrupt_takes_an_open_question_back(tmp_path: Path) -> None:
    with FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        asked = question(process)
        process.control("interrupt")
        process.result()
        assert process.wait("control_cancel_request")["request_id"] == asked["request_id"]
        process.say()
        process.result(2)
        process.end()
    assert [terminal.interrupted for terminal in process.terminals] == [True, False]


def test_the_end_of_stdin_denies_an_open_question_and_lets_the_turn_end(tmp_path: Path) -> None:
    with FakeApi("chat", answer(call("mcp__clisup__add", a=1, b=2)), DONE) as fake, asks(tmp_path, fake) as process:
        process.say()
        question(process)
        assert process.end() == 0
    assert process.terminals[0].text == "Done."
    assert [result.is_error for result in process.events(ToolResult)] == [True]


def test_the_end_of_stdin_lets_the_turn_and_the_queue_end(tmp_path: Path) -> None:
    def slowly(api: str, n: int) -> Reply:
        eventually(lambda: process.process.stdin.closed)  # type: ignore[union-attr]
        return answer(say(f"Answer {n}."))(api, n)

    with FakeApi("chat", slowly) as fake, worker(fake, tmp_path, live=True) as process:
        process.say("One.")
        eventually(lambda: fake.bodies or fake.requests or process.lines)
        process.wait("requesting")
        process.say("Two.")
        assert process.end() == 0
    assert [terminal.text for terminal in process.terminals] == ["Answer 0.", "Answer 1."]


@pytest.mark.parametrize("running", [True, False])
def test_an_end_of_the_session_ends_the_process(running: bool, tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall())) as fake, worker(fake, tmp_path, live=True) as process:
        if running:
            process.say()
            process.wait("Half")
        process.control("end_session")
        assert process.ended() == 0
    assert [terminal.interrupted for terminal in process.terminals] == [True] * running


@pytest.mark.parametrize("live", [True, False])
def test_sigint_ends_the_turn_and_the_process_with_exit_code_0(live: bool, tmp_path: Path) -> None:
    with FakeApi("chat", partial(say("Half"), Stall())) as fake, worker(fake, tmp_path, live=live) as process:
        process.say()
        process.wait("Half")
        process.process.send_signal(signal.SIGINT)
        assert process.ended() == 0
    [terminal] = process.terminals
    assert terminal.interrupted


def test_sigint_ends_a_worker_whose_servers_have_not_started(tmp_path: Path) -> None:
    hanging = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    config = mcp_config(tmp_path, slow={"command": sys.executable, "args": ["-c", hanging, str(tmp_path / "started")]})
    with FakeApi("chat", DONE) as fake, worker(fake, tmp_path, *config, live=True) as process:
        process.say("Hello.", ONE)
        process.wait("queued")
        eventually((tmp_path / "started").exists)
        process.process.send_signal(signal.SIGINT)
        assert process.ended() == 0
    assert not fake.bodies and states(process, ONE) == ["queued"]


@pytest.mark.parametrize(
    "line", [b"{\n", b'{"type":"user","message":{"role":"assistant","content":"x"}}\n', b"\xff{}x\n"]
)
def test_a_line_that_is_no_message_ends_the_process_as_with_claude(line: bytes, tmp_path: Path) -> None:
    with worker("chat", tmp_path, url="http://127.0.0.1:9") as process:
        process.write(line)
        assert process.ended() == 1
    assert not process.lines and process.stderr.count(b"\n") == 1


def test_lines_of_unknown_types_and_empty_lines_are_ignored(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."))) as fake, worker(fake, tmp_path) as process:
        process.write(b'\n{"type":"keep_alive"}\n[1]\n{"type":"control_response","response":{"request_id":"x"}}\n')
        assert process.ask("x" * 3_000_000).text == "Hi."


def test_a_last_line_without_its_newline_is_a_message(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."))) as fake, worker(fake, tmp_path) as process:
        process.write(json.dumps({"type": "user", "message": {"role": "user", "content": "Hi."}}).encode())
        assert process.end() == 0
    assert process.terminals[0].text == "Hi."


@each_api
def test_a_silent_api_makes_a_silent_worker_and_pings_make_signs_of_life(api: str, tmp_path: Path) -> None:
    ping = {"anthropic": 'event: ping\ndata: {"type": "ping"}\n\n'}.get(api, ": ping\n\n")

    def pings(dialect: str, n: int) -> Reply:
        return [step for _ in range(400) for step in (Raw({"type": "raw"}, {}, ping), Pause(0.1))]

    with FakeApi(api, pings) as fake, worker(fake, tmp_path, live=True) as process:
        process.say()
        process.wait("keep_alive")
        before = [frame for frame in process.frames if frame["type"] != "keep_alive"]
        assert [frame.get("subtype") for frame in before][-1] == "status"
        process.control("interrupt")
        process.result()
    with FakeApi(api, steps(Stall())) as fake, worker(fake, tmp_path, live=True) as process:
        process.say()
        eventually(lambda: fake.bodies)
        seen = len(process.lines)
        process.control("get_nothing")
        assert len(process.lines) == seen + 1


def test_an_interrupt_ends_the_wait_before_a_repeat(tmp_path: Path) -> None:
    with (
        FakeApi("chat", refuse(429, headers={"retry-after": "50"})) as fake,
        worker(fake, tmp_path, live=True) as process,
    ):
        process.say()
        process.wait("api_retry")
        process.control("interrupt")
        process.result()
        process.end()
    assert process.terminals[0].interrupted

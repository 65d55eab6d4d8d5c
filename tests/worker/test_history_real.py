"""The history of a session over several processes: clean ends, kills, torn lines, and ids that are taken or unknown."""

from __future__ import annotations

import json
import stat
import uuid
from pathlib import Path

import pytest

from tests.worker.driver import KEY, eventually, mcp_config, worker
from tests.worker.fake_api import APIS, FakeApi, Stall, answer, call, partial, say

each_api = pytest.mark.parametrize("api", APIS)


def prompts(api: str, fake: FakeApi, n: int) -> str:
    body = fake.bodies[n]
    return json.dumps(body["input"] if api == "responses" else body["messages"])


@each_api
def test_a_session_is_resumed_with_all_that_was_said(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("First answer."))) as fake:
        with worker(fake, tmp_path) as first:
            first.ask("First question.")
        with worker(fake, tmp_path, resume=first.session) as second:
            second.ask("Second question.")
            assert second.ended() == 0
    sent = prompts(api, fake, 1)
    assert [words in sent for words in ("First question.", "First answer.", "Second question.")] == [True] * 3
    assert second.result()["session_id"] == first.session
    [path] = tmp_path.glob(".local/state/clisup-worker/projects/*/*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KEY not in path.read_text()
    entries = first.transcript()
    assert [entry["type"] for entry in entries] == ["user", "assistant", "user", "assistant"]
    assert [entry["parentUuid"] for entry in entries[1:]] == [entry["uuid"] for entry in entries[:-1]]


@each_api
def test_a_session_killed_in_the_stream_is_resumed_without_the_half_answer(api: str, tmp_path: Path) -> None:
    with FakeApi(api, partial(say("Half an"), Stall()), answer(say("Whole."))) as fake:
        with worker(fake, tmp_path) as first:
            first.say("Question.")
            first.wait("Half an")
            first.kill()
        with worker(fake, tmp_path, resume=first.session) as second:
            assert second.ask("Go on.").text == "Whole."
    sent = prompts(api, fake, 1)
    assert "Question." in sent and "Go on." in sent and "Half an" not in sent


@each_api
def test_a_call_that_ran_when_the_session_was_killed_gets_a_result_that_says_so(api: str, tmp_path: Path) -> None:
    args = (*mcp_config(tmp_path), "--allowedTools", "mcp__clisup")
    calls = answer(call("mcp__clisup__hang"), call("mcp__clisup__add", a=1, b=2))
    with FakeApi(api, calls, answer(say("Ok."))) as fake:
        with worker(fake, tmp_path, *args) as first:
            first.say("Use a tool.")
            first.wait("tool_result")
            eventually(lambda: "hang" in (tmp_path / "calls").read_text())
            first.kill()
        with worker(fake, tmp_path, *args, resume=first.session) as second:
            assert second.ask("Go on.").text == "Ok."
    assert prompts(api, fake, 1).count("No result: the process ended while the tool ran") == 2


def test_a_torn_last_line_is_left_out_and_later_lines_are_whole(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Answer."))) as fake:
        with worker(fake, tmp_path) as first:
            first.ask("One.")
        [path] = tmp_path.glob(".local/state/clisup-worker/projects/*/*.jsonl")
        with path.open("ab") as file:
            file.write(b'{"type":"user","message":{"role":"user","content":"torn \xc3')
        for words in ("Two.", "Three."):
            with worker(fake, tmp_path, resume=first.session) as process:
                process.ask(words)
    sent = prompts("chat", fake, 2)
    assert "torn" not in sent and "Two." in sent and "Three." in sent


def test_an_id_in_use_is_refused_as_by_claude(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."))) as fake:
        with worker(fake, tmp_path) as first:
            first.ask()
        with worker(fake, tmp_path, session=first.session) as second:
            assert second.end() == 1
    assert f"Session ID {first.session} is already in use.".encode() in second.stderr
    assert not second.lines and len(fake.bodies) == 1


def test_an_unknown_session_is_a_result_of_that_kind(tmp_path: Path) -> None:
    with worker("chat", tmp_path, resume=str(uuid.uuid4()), url="http://127.0.0.1:9") as process:
        assert process.end() == 1
    [terminal] = process.terminals
    assert terminal.error is not None and terminal.error.kind == "session_not_found"
    assert b"No conversation found" in process.stderr


def test_a_new_session_that_was_killed_before_its_first_message_can_have_its_id_again(tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    with FakeApi("chat", answer(say("Hi."))) as fake:
        with worker(fake, tmp_path, session=session) as first:
            first.kill()
        with worker(fake, tmp_path, session=session) as second:
            assert not second.ask().is_error


def test_the_state_directory_of_the_environment_has_the_transcripts(tmp_path: Path) -> None:
    with (
        FakeApi("chat", answer(say("Hi."))) as fake,
        worker(fake, tmp_path, env={"XDG_STATE_HOME": str(tmp_path / "s")}) as process,
    ):
        process.ask()
    assert [*tmp_path.glob("s/clisup-worker/projects/*/*.jsonl")]


def test_a_message_that_failed_is_sent_again_with_the_next_one(tmp_path: Path) -> None:
    from tests.worker.fake_api import refuse

    with FakeApi("anthropic", refuse(400, "no"), answer(say("Hi."))) as fake, worker(fake, tmp_path) as process:
        process.say("One.")
        process.result()
        process.say("Two.")
        process.end()
    [message] = fake.bodies[1]["messages"]
    assert [block["text"] for block in message["content"]] == ["One.", "Two."]

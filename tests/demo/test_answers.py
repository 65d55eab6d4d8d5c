"""What the demo CLI says: text, tools and facts, from a real process."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.demo.conftest import Demo


def test_a_plain_prompt_is_echoed_in_deltas_with_usage_and_cost(demo: Demo) -> None:
    run = demo.run("hello there, this is a prompt")
    assert run.code == 0
    assert run.text == "".join(run.deltas()) == "You said: hello there, this is a prompt"
    assert len(run.deltas()) > 1
    assert run.results[0]["usage"]["input_tokens"] == 8
    assert run.results[0]["total_cost_usd"] > 0


def test_a_text_turn_has_the_frames_of_claude(demo: Demo) -> None:
    run = demo.run("@text hi")
    shape = [f["event"]["type"] if f["type"] == "stream_event" else f.get("subtype") or f["type"] for f in run.frames]
    assert shape == [
        "init", "status", "message_start", "content_block_start", "content_block_delta", "assistant", "content_block_stop",
        "message_delta", "message_stop", "success",
    ]  # fmt: skip


def test_the_same_prompt_costs_the_same(demo: Demo) -> None:
    first, second = (demo.run("@text hi").results[0] for _ in range(2))
    assert (first["usage"], first["total_cost_usd"]) == (second["usage"], second["total_cost_usd"])


def test_usage_and_cost_can_be_set(demo: Demo) -> None:
    result = demo.run("@usage 7 9\n@cost 0.25\n@text hi").results[0]
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (7, 9)
    assert result["total_cost_usd"] == 0.25


def test_a_stream_is_numbered_and_sized(demo: Demo) -> None:
    deltas = demo.run("@stream 200 32").deltas()
    assert [delta[:12] for delta in deltas] == [f"chunk {number:06d}" for number in range(200)]
    assert {len(delta) for delta in deltas} == {32}


def test_a_huge_answer_is_whole_everywhere(demo: Demo) -> None:
    run = demo.run("@huge 300000")
    assert run.text == "".join(run.deltas()) == run.of("assistant")[0]["message"]["content"][0]["text"] == "x" * 300000


def test_a_line_is_as_long_as_asked(demo: Demo) -> None:
    assert max(len(line) + 1 for line in demo.run("@line 100000").lines) == 100000


def test_a_thought_comes_in_a_block_of_its_own(demo: Demo) -> None:
    blocks = [frame["message"]["content"][0] for frame in demo.run("@think hm\n@text yes").of("assistant")]
    assert [(block["type"], block.get("thinking")) for block in blocks] == [("thinking", "hm"), ("text", None)]


def test_cut_text_is_abandoned_and_never_confirmed(demo: Demo) -> None:
    run = demo.run("@cut")
    lost = [frame["abandoned_blocks"] for frame in run.of("stream_event") if "abandoned_blocks" in frame]
    assert [entry["from_block_index"] for entry in lost] == [0]
    assert "taken back" in "".join(run.deltas())
    assert run.text == "This text stays."
    assert all("taken back" not in json.dumps(frame) for frame in run.of("assistant"))


def test_bash_really_runs_and_merges_its_output(demo: Demo) -> None:
    run = demo.run("@bash echo out; echo err >&2; touch made; exit 7")
    (block,) = run.of("user")[0]["message"]["content"]
    assert (block["content"], block["is_error"]) == ("Exit code 7\nout\nerr", True)
    assert (demo.cwd / "made").exists()
    assert run.code == 0


def test_bash_runs_in_a_session_of_its_own(demo: Demo) -> None:
    run = demo.run("@bash cut -d' ' -f6 /proc/$$/stat; echo $$")
    session, pid = run.of("user")[0]["message"]["content"][0]["content"].split()
    assert session == pid


def test_bash_does_not_wait_for_what_it_leaves_in_the_background(demo: Demo) -> None:
    run = demo.run("@bash sleep 60 & echo $!")
    pid = int(run.of("user")[0]["message"]["content"][0]["content"])
    assert demo.is_alive(pid)
    os.kill(pid, 9)


def test_a_running_command_shows_signs_of_life(demo: Demo) -> None:
    live = demo.start("@heartbeat 0.01\n@bash until [ -e go ]; do sleep 0.01; done")
    live.wait_for(b'"tool_progress"')
    (demo.cwd / "go").touch()
    run = live.end()
    assert run.of("system", "task_started")
    assert run.of("system", "task_notification")[0]["status"] == "completed"


def test_a_command_over_its_timeout_goes_on_in_the_background(demo: Demo) -> None:
    live = demo.start("@bash timeout=0.05 until [ -e go ]; do sleep 0.01; done\n@text waiting")
    live.wait_for(b'"type":"result"')
    (demo.cwd / "go").touch()
    run = live.end()
    assert [result["result_index"] for result in run.results] == [0, 1]
    assert run.of("user")[0]["tool_use_result"]["backgroundTaskId"]


def test_parallel_results_come_out_of_order(demo: Demo) -> None:
    # The first command ends only when the demo has reaped the last one, and with that has its result.
    first = "until [ -e pid ] && ! kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo one"
    last = "echo $$ > new; mv new pid; echo three"
    run = demo.run(f"@parallel\n@bash {first}\n@tool B => two\n@bash {last}\n@end")
    uses = [
        f["message"]["content"][0]["id"]
        for f in run.of("assistant")
        if f["message"]["content"][0]["type"] == "tool_use"
    ]
    results = [f["message"]["content"][0]["tool_use_id"] for f in run.of("user")]
    assert sorted(results) == sorted(uses)
    assert results[-1] == uses[0]


def test_an_unanswered_permission_is_a_denial_and_no_failure(demo: Demo) -> None:
    run = demo.run('@denied Write {"file_path": "no.txt", "content": "x"}')
    assert run.of("system", "permission_denied")[0]["tool_name"] == "Write"
    assert run.results[0]["permission_denials"][0]["tool_input"] == {"file_path": "no.txt", "content": "x"}
    assert (run.code, run.results[0]["is_error"]) == (0, False)
    assert not (demo.cwd / "no.txt").exists()


def test_accept_edits_really_writes_below_the_directory_only(demo: Demo) -> None:
    script = '@run Write {"file_path": "yes.txt", "content": "old"}\n'
    script += '@run Edit {"file_path": "yes.txt", "old_string": "old", "new_string": "new"}\n'
    script += '@run Write {"file_path": "../out.txt", "content": "x"}\n@denied Deploy'
    run = demo.run(script, "--permission-mode", "acceptEdits")
    assert (demo.cwd / "yes.txt").read_text() == "new"
    assert not (demo.cwd.parent / "out.txt").exists()
    assert [denial["tool_name"] for denial in run.results[0]["permission_denials"]] == ["Write", "Deploy"]


def test_a_background_task_gives_a_second_turn(demo: Demo) -> None:
    run = demo.run("@background 0.01 It has finished.\n@text Started.")
    assert [(r["result"], r.get("origin", {}).get("kind")) for r in run.results] == [
        ("Started.", None), ("It has finished.", "task-notification"),
    ]  # fmt: skip
    assert len(run.of("system", "init")) == 2
    assert [bool(frame["tasks"]) for frame in run.of("system", "background_tasks_changed")] == [True, False]


def test_variables_are_told_by_name_and_never_by_value(demo: Demo) -> None:
    demo.env["SECRET_THING"] = "s3cr3t-value"
    run = demo.run("@env SECRET_THING NOT_THERE\n@env-all")
    assert "SECRET_THING: present\nNOT_THERE: absent" in run.text
    assert {"HOME", "PATH", "SECRET_THING"} <= set(run.text.splitlines())
    assert b"s3cr3t-value" not in run.stdout


def test_the_process_says_its_pid(demo: Demo) -> None:
    live = demo.start("@say-pid")
    assert live.end().text == f"pid {live.process.pid}"


def test_a_test_can_step_the_script(demo: Demo) -> None:
    live = demo.start(f"@touch {demo.cwd}/here\n@wait-file go\n@text went")
    assert demo.eventually((demo.cwd / "here").exists)
    assert live.process.poll() is None
    (demo.cwd / "go").touch()
    assert live.end().text == "went"


def test_a_session_remembers_across_resumes_and_adds_up_its_cost(demo: Demo) -> None:
    session = str(uuid.uuid4())
    first = demo.run("@text first\n@count\n@cost 0.5", "--session-id", session, "--model", "sticky")
    second = demo.run("@count\n@recall\n@cost 0.25", f"--resume={session}")
    assert "turn 1" in first.text
    assert "turn 2" in second.text
    assert "The first prompt was: @text first" in second.text
    assert second.results[0]["total_cost_usd"] == 0.75
    assert second.of("system", "init")[0]["model"] == "sticky"
    assert len(demo.transcripts(session)) == 1


def test_a_session_resumes_from_another_directory(demo: Demo) -> None:
    session = str(uuid.uuid4())
    demo.run("one", "--session-id", session)
    demo.cwd = demo.home
    assert demo.run("@count", "--resume", session).text == "turn 2"


def test_a_fork_begins_with_a_copy(demo: Demo) -> None:
    session, fork = str(uuid.uuid4()), str(uuid.uuid4())
    demo.run("one", "--session-id", session)
    assert demo.run("@count", "--resume", session, "--fork-session", "--session-id", fork).text == "turn 2"
    assert demo.run("@count", "--resume", session).text == "turn 2"


def test_a_session_id_in_use_is_refused(demo: Demo) -> None:
    session = str(uuid.uuid4())
    demo.run("one", "--session-id", session)
    run = demo.run("two", "--session-id", session)
    assert (run.code, run.stdout, run.stderr) == (1, b"", f"Error: Session ID {session} is already in use.\n")


def test_an_unknown_session_is_one_result_without_init(demo: Demo) -> None:
    session = str(uuid.uuid4())
    run = demo.run("hello", "--resume", session)
    assert run.code == 1
    assert [frame["type"] for frame in run.frames] == ["result"]
    assert run.results[0]["errors"] == [f"No conversation found with session ID: {session}"]
    assert run.results[0]["session_id"] != session


def test_a_turn_without_transcript_leaves_the_id_free(demo: Demo) -> None:
    session = str(uuid.uuid4())
    demo.run("@no-transcript\n@exit 3", "--session-id", session)
    assert demo.transcripts(session) == []
    assert demo.run("again", "--session-id", session).code == 0


@pytest.mark.parametrize(("output_format", "expected"), [("text", b"hi\n"), ("json", b'"result":"hi"')])
def test_the_short_output_formats_give_the_result_alone(demo: Demo, output_format: str, expected: bytes) -> None:
    run = demo.run("@text hi", base=("-p", "--output-format", output_format))
    assert expected in run.stdout
    assert len(run.lines) == 1


def test_structured_output_is_in_the_result(demo: Demo) -> None:
    assert demo.run('@structured {"answer": 42}').results[0]["structured_output"] == {"answer": 42}

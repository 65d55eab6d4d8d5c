"""Many turns of one demo process. In which order it says things is in test_live_order.py."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.backends.recorded import RECORDINGS
from tests.demo.conftest import BASE, COMMAND, LIVE, PATIENCE_S, Demo, Talk
from tests.demo.told import told
from tests.e2e.dialogue import uuid_of
from tests.versions import VERSIONS

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def reply(talk: Talk, script: str, name: str | None = None) -> str:
    """A turn; its result's text."""
    talk.say(script, name)
    return str(talk.until("result").get("result"))


def test_a_turn_has_its_own_usage_and_the_session_its_cost(demo: Demo) -> None:
    talk = demo.live()
    reply(talk, "@usage 100 10\nOne.")
    reply(talk, "@usage 200 20\nTwo.")
    first, second = talk.end().results
    assert (first["usage"]["input_tokens"], second["usage"]["input_tokens"]) == (100, 200)
    assert second["total_cost_usd"] == pytest.approx(300 * 3e-6 + 30 * 15e-6)
    assert (first["result_index"], second["result_index"]) == (0, 1)


def test_it_remembers_its_turns_and_so_does_a_resume(demo: Demo) -> None:
    session = str(uuid.uuid4())
    talk = demo.live("--session-id", session)
    assert reply(talk, "Remember 42.\n@text ok") == "Remember 42.\nok"
    assert reply(talk, "@count\n@recall") == "turn 2\nThe first prompt was: Remember 42."
    talk.end()
    again = demo.live("--resume", session)
    assert reply(again, "@count") == "turn 3"
    again.end()
    assert demo.run("@count", "--resume", session).text == "turn 4"


def test_a_message_that_had_its_turn_is_not_run_again_by_a_resume(demo: Demo) -> None:
    session = str(uuid.uuid4())
    talk = demo.live("--session-id", session)
    reply(talk, "First.", "one")
    talk.end()
    again = demo.live("--resume", session)
    again.say("First.", "one")
    again.until("command_lifecycle", command_uuid=uuid_of("one"), state="completed")
    assert again.end().results == []


def test_a_message_whose_turn_was_killed_is_run_by_a_resume(demo: Demo) -> None:
    session = str(uuid.uuid4())
    talk = demo.live("--session-id", session)
    talk.say("Half\n@stall", "one")
    talk.delta()
    talk.end(signal.SIGKILL)
    again = demo.live("--resume", session)
    assert reply(again, "Whole.", "one") == "You said: Whole."
    again.end()


def test_without_its_variable_it_tells_no_state(demo: Demo) -> None:
    talk = demo.live(states=False)
    reply(talk, "Hello.", "one")
    assert talk.end().of("system", "session_state_changed") == []


def test_messages_that_become_one_turn_are_one_script(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@wait-file go\nOne.", "one")
    talk.until("system", status="requesting")
    talk.say("Two.", "two")
    talk.say("@say-pid", "three")
    talk.waits("three")
    talk.go()
    assert [talk.until("result")["result"] for _ in range(2)] == ["One.", f"Two.\npid {talk.process.pid}"]
    talk.end()


def test_a_message_that_is_taken_in_is_played_behind_the_running_script(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@bash while [ ! -e go ]; do sleep 0.01; done\nAfter the tool.", "one")
    talk.calls()
    talk.say("Also this.", "two")
    talk.waits("two")
    talk.go()
    assert talk.until("result")["result"] == "After the tool.\nYou said: Also this."
    talk.end()


def test_the_text_of_blocks_is_the_script_and_images_are_counted(demo: Demo) -> None:
    talk = demo.live()
    talk.say([{"type": "text", "text": "Look:"}, IMAGE, IMAGE, {"type": "text", "text": "@images"}])
    assert talk.until("result")["result"] == "Look:\nimages: 2"
    talk.say([{"type": "text", "text": "Look:"}])
    assert talk.until("result")["result"] == "You said: Look:"
    talk.end()


def test_a_command_in_the_last_block_is_run_and_a_newline_before_it_prevents_that(demo: Demo) -> None:
    talk = demo.live()
    talk.say([IMAGE, {"type": "text", "text": "/compact"}])
    assert talk.until("result")["local_command"] == "compact"
    assert reply(talk, "\n/compact") == "You said: \n/compact"
    assert reply(talk, "/nosuch") == "You said: /nosuch"
    talk.end()


def test_a_mistaken_script_fails_its_turn_alone(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@nonsense", "one")
    failed = talk.until("result")
    assert failed["is_error"]
    assert "unknown directive @nonsense" in failed["result"]
    assert reply(talk, "Hello.") == "You said: Hello."
    assert talk.end().code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("this is not JSON", "Error parsing streaming input line (type=unknown, 16 chars): SyntaxError"),
        ('{"type":"user","message":{"role":"assistant"}}', "Error: Expected message role 'user', got 'assistant'"),
        ('{"type":"control_request","request_id":"r"}', "Error: Missing request on control_request"),
    ],
)
def test_a_bad_line_ends_it_at_once_and_its_tools(demo: Demo, line: str, said: str) -> None:
    talk = demo.live()
    talk.say("@bash sleep 600", "one")
    talk.calls()
    talk.line(line)
    run = talk.end()
    assert (run.code, run.stderr.strip(), run.results) == (1, said, [])
    assert Demo.eventually(lambda: not demo.survivors())


@pytest.mark.parametrize(
    "line", ["", "   ", "[1, 2]", "7", '{"type": "from_the_future"}', '{"type": "keep_alive"}', '{"type": 5}']
)
def test_a_line_that_means_nothing_is_ignored(demo: Demo, line: str) -> None:
    talk = demo.live()
    talk.line(line)
    assert reply(talk, "Hello.") == "You said: Hello."
    assert talk.end().code == 0


@pytest.mark.parametrize("content", [None, 5, [], [7, None], {}, ""])
def test_a_message_without_text_has_its_turn(demo: Demo, content: object) -> None:
    talk = demo.live()
    talk.line(json.dumps({"type": "user", "message": {"role": "user", "content": content}}))
    assert talk.until("result")["is_error"] is False
    talk.end()


def test_a_message_of_many_megabytes_arrives_whole(demo: Demo) -> None:
    talk = demo.live()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5_000_000}}
    talk.say([image, {"type": "text", "text": "@images"}])
    assert talk.until("result")["result"] == "images: 1"
    talk.end()


def test_the_last_line_needs_no_newline(demo: Demo) -> None:
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "Hello."}})
    done = subprocess.run(
        [*COMMAND, *BASE, *LIVE],
        input=line.encode(),
        capture_output=True,
        env=demo.env,
        cwd=demo.cwd,
        timeout=PATIENCE_S,
    )
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "You said: Hello."


def test_lines_may_come_from_a_file(demo: Demo) -> None:
    path = demo.cwd / "said.jsonl"
    lines = [json.dumps({"type": "user", "message": {"role": "user", "content": text}}) for text in ("One.", "Two.")]
    path.write_text("\n".join(lines) + "\n")
    with path.open() as said:
        done = subprocess.run(
            [*COMMAND, *BASE, *LIVE], stdin=said, capture_output=True, env=demo.env, cwd=demo.cwd, timeout=PATIENCE_S
        )
    results = [frame for line in done.stdout.splitlines() if (frame := json.loads(line))["type"] == "result"]
    assert [result["result"] for result in results] == ["You said: One.", "You said: Two."]


def test_it_goes_on_without_anybody_who_reads(demo: Demo) -> None:
    talk = demo.live()
    assert talk.process.stdout is not None
    talk.say("@wait-file go\n@touch went-on")
    talk.process.stdout.close()
    talk.go()
    assert Demo.eventually((demo.cwd / "went-on").exists)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_a_signal_ends_it_with_its_tools_whether_it_runs_or_waits(
    demo: Demo, signum: signal.Signals, code: int
) -> None:
    busy = demo.live()
    busy.say("@bash sleep 600", "one")
    busy.calls()
    assert busy.end(signum).code == code
    assert Demo.eventually(lambda: not demo.survivors())
    waiting = demo.live()
    reply(waiting, "Hello.")
    run = waiting.end(signum)
    assert (run.code, len(run.results)) == (code, 1)


def test_an_interrupted_tool_is_killed_and_the_process_lives(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@bash sleep 600", "one")
    talk.calls()
    talk.ask("interrupt")
    talk.idle()
    assert Demo.eventually(lambda: not demo.survivors())
    assert reply(talk, "Hello.") == "You said: Hello."
    assert talk.end().code == 0


def test_text_that_was_said_before_an_interrupt_is_in_the_aborted_message(demo: Demo) -> None:
    talk = demo.live()
    talk.say("One two three.\n@stall", "one")
    talk.delta()
    talk.ask("interrupt")
    talk.idle()
    (aborted,) = (frame for frame in talk.end().of("assistant") if frame.get("aborted"))
    assert aborted["message"]["content"][0]["text"] == "One two three."


def test_a_background_task_outlives_an_interrupt_and_its_end_is_a_turn(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@background 0.3 It has finished.\n@stall", "one")
    talk.until("system", subtype="task_started")
    talk.ask("interrupt")
    talk.idle()
    followed = talk.until("result", result="It has finished.")
    assert followed["origin"]["kind"] == "task-notification"
    talk.end()


def test_a_message_that_comes_as_a_background_task_ends_has_its_turn_after_the_follow_up(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@background 0.1 It has finished.\nStarted it.", "one")
    talk.until("system", subtype="task_notification")
    talk.say("Second.", "two")
    results = [talk.until("result")["result"] for _ in range(2)]
    assert results == ["It has finished.", "You said: Second."]
    talk.end()


def test_the_end_of_a_background_task_that_a_tool_outlives_is_told_in_the_running_turn(demo: Demo) -> None:
    talk = demo.live()
    talk.say("@bash timeout=0.01 while [ ! -e over ]; do sleep 0.01; done\nStarted it.", "one")
    talk.idle()
    talk.say("@bash while [ ! -e go ]; do sleep 0.01; done\nBoth.", "two")
    talk.calls()
    talk.go("over")
    talk.until("system", subtype="task_notification")
    talk.go()
    assert talk.until("result")["result"] == "Both.\nThe command has ended."
    assert len(talk.end().results) == 2


def test_the_model_and_the_mode_hold_for_the_next_turn(demo: Demo) -> None:
    talk = demo.live("--model", "m-1")
    talk.ask("set_model", model="m-2")
    talk.ask("set_permission_mode", mode="plan")
    reply(talk, "Hello.")
    talk.ask("set_model", model="default")
    assert talk.answered()["response"] == {"model": "m-1"}
    reply(talk, "Hello.")
    inits = talk.end().of("system", "init")
    assert [(init["model"], init["permissionMode"]) for init in inits] == [("m-2", "plan"), ("m-1", "plan")]


def test_the_context_grows_with_what_is_said(demo: Demo) -> None:
    talk = demo.live()
    used = []
    for number in range(2):
        reply(talk, "x" * 4000)
        talk.ask("get_context_usage", f"u{number}")
        used.append(talk.until("control_response")["response"]["response"]["totalTokens"])
    assert used == [1000, 2000]
    talk.end()


def test_an_interrupt_is_answered_even_where_it_says_no_id(demo: Demo) -> None:
    talk = demo.live()
    talk.line('{"type":"control_request","request":{"subtype":"interrupt"}}')
    assert talk.answered() == {"subtype": "success", "response": {"still_queued": []}}
    talk.end()


def test_a_session_in_use_and_an_unknown_one_end_it_before_it_listens(demo: Demo) -> None:
    session = str(uuid.uuid4())
    demo.run("hello", "--session-id", session)
    used, unknown = demo.live("--session-id", session).end(), demo.live("--resume", str(uuid.uuid4())).end()
    assert (used.code, used.frames) == (1, [])
    assert "already in use" in used.stderr
    assert (unknown.code, len(unknown.frames)) == (1, 1)


def test_live_input_needs_live_output(demo: Demo) -> None:
    run = demo.live(base=("-p", "--input-format", "stream-json")).end()
    assert (run.code, run.stderr.strip()) == (
        1,
        "Error: --input-format=stream-json requires output-format=stream-json.",
    )


def test_a_plain_live_turn_loads_no_module_that_it_has_no_use_for(demo: Demo) -> None:
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "Hello."}})
    done = subprocess.run(
        [COMMAND[0], "-X", "importtime", *COMMAND[1:], *BASE, *LIVE], input=line.encode(), capture_output=True, env=demo.env,
        cwd=demo.cwd, timeout=PATIENCE_S,
    )  # fmt: skip
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.decode().splitlines()}
    assert not loaded & {"subprocess", "threading", "uuid", "clisup.demo.permissions", "clisup.demo.mcp"}
    assert "clisup.demo.live" in loaded


def test_a_recorded_dialogue_is_played_to_whoever_says_the_same_lines(demo: Demo) -> None:
    recording = RECORDINGS / "claude" / VERSIONS["claude"] / "live_ask_allow.jsonl"
    meta = json.loads(recording.with_suffix(".meta.json").read_text())
    talk = demo.live(base=("--play", str(recording), "0"))
    for _, line in meta["stdin"][:-1]:
        talk.line(line)
    assert told(talk.end().frames) == told(json.loads(line) for line in recording.read_text().splitlines())


def test_a_recorded_dialogue_waits_for_its_answer(demo: Demo) -> None:
    recording: Path = RECORDINGS / "claude" / VERSIONS["claude"] / "live_ask_allow.jsonl"
    talk = demo.live(base=("--play", str(recording), "0"))
    talk.say("Whatever.", "one")
    assert talk.asked()["tool_name"] == "Bash"
    assert "result" not in {frame["type"] for frame in talk.frames}
    talk.answer("allow")
    talk.until("result")
    talk.process.kill()

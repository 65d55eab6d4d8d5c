"""When silence ends a turn, and when it must not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until


@pytest.fixture(scope="module")
def hasty() -> Iterator[Harness]:
    """Model silence of 0.8 s is too long, a tool's of 60 s is not."""
    harness = Harness(timeouts={"model_idle": 0.8, "tool_idle": 60, "linger": 0.5, "term_grace": 0.3})
    harness.start()
    yield harness
    harness.close()


@pytest.mark.fault(15)
def test_a_silent_model_is_warned_of_and_ended(hasty: Harness) -> None:
    session = hasty.new()
    end = session.ask("a word\n@stall")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout") and end["error"]["retryable"]
    warned, fired = session.events("watchdog")
    assert (warned["action"], fired["action"]) == ("warned", "fired")
    assert warned["phase"] == fired["phase"] == "model" and fired["limit_s"] == 0.8
    assert 0.64 <= warned["idle_s"] < fired["idle_s"]
    assert session.events("process_exited")[0]["ended_by"] == "watchdog:model"
    assert "a word" in "".join(e["text"] for e in session.events("content_delta"))


@pytest.mark.fault(15)
def test_a_silent_tool_has_its_own_budget(hasty: Harness) -> None:
    session = hasty.new()
    assert session.ask("@bash sleep 1.4; echo slept")["outcome"] == "completed"
    assert not session.events("watchdog", action="fired")


def test_a_tool_over_its_budget_is_ended(hasty: Harness) -> None:
    session = hasty.new(timeouts={"tool_idle": 0.6})
    end = session.ask("@bash sleep 300")
    assert end["outcome"] == "timed_out"
    fired = session.events("watchdog", action="fired")[0]
    assert fired["phase"] == "tool" and fired["evidence"]["open_tools"] == ["Bash"]
    assert not session.processes()


def test_pings_are_life(hasty: Harness) -> None:
    session = hasty.new()
    assert session.ask("@pings 0.2 8\nhello")["outcome"] == "completed"


def test_a_cli_that_never_says_a_frame_has_not_started(serve: Callable[..., Harness], tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "1.0.0 (clisup demo)" && exit\nexec sleep 300\n')
    mute.chmod(0o755)
    daemon = serve(demo={"command": [str(mute)]}, timeouts={"startup": 0.4, "term_grace": 0.3})
    session = daemon.new()
    assert session.ask("hello")["error"]["kind"] == "startup_timeout"
    assert session.events("process_exited")[0]["ended_by"] == "watchdog:startup"


@pytest.mark.fault(15)
@pytest.mark.parametrize(("more", "kind"), [("", "rate_limit"), ("a word\n", "idle_timeout")])
def test_a_told_retry_is_the_reason_of_the_silence_behind_it_until_the_model_answers(
    hasty: Harness, more: str, kind: str
) -> None:
    end = hasty.new().ask(f"@retry rate_limit 1\n{more}@stall")
    assert (end["outcome"], end["error"]["kind"], end["error"]["retryable"]) == ("timed_out", kind, True)


REPEATS = """#!/bin/sh
[ "$1" = --version ] && echo 0.61.0 && exit
cat > /dev/null
echo '{"type":"init","model":"m"}'
echo 'Attempt 1 failed: Resource has been exhausted. Retrying after 41640ms...' >&2
exec sleep 300
"""


# opencode prints nothing before the model's answer.
FROM_THE_START = """#!/bin/sh
[ "$1" = --version ] && echo 1.18.34 && exit
cat > /dev/null
echo 'level=ERROR message="stream error" providerID=p error.error="AI_APICallError: Rate limit reached."' >&2
exec sleep 300
"""


@pytest.mark.fault(15)
@pytest.mark.parametrize(
    ("kind", "script", "phase", "limit", "words"),
    [
        ("gemini", REPEATS, "model_idle", 0.8, "Resource has been exhausted"),
        ("opencode", FROM_THE_START, "startup", 8.0, "AI_APICallError: Rate limit reached."),
    ],
)
def test_a_silent_cli_that_repeats_a_refused_request_ends_for_that_reason(
    serve: Callable[..., Harness], tmp_path: Path, kind: str, script: str, phase: str, limit: float, words: str
) -> None:
    cli = tmp_path / kind
    cli.write_text(script)
    cli.chmod(0o755)
    table = f'[backends.repeats]\nkind = "{kind}"\ncommand = ["{cli}"]\nsetting_sources = "user,project"\n'
    daemon = serve(raw=f"{table}[backends.repeats.timeouts]\n{phase} = {limit}\nterm_grace = 0.3\n")
    end = daemon.new(backend="repeats").ask("hello")
    assert (end["outcome"], end["error"]["kind"], end["error"]["retryable"]) == ("timed_out", "rate_limit", True)
    assert f"{limit:g} s" in end["error"]["message"] and words in end["error"]["message"]


NOTES = """#!/bin/sh
[ "$1" = --version ] && echo 0.24.4 && exit
for part; do case $part in --session-id=*) id=${part#*=} ;; esac; done
cat > /dev/null
mkdir -p "$HOME/.qwen/projects/p/chats"
cat >> "$HOME/.qwen/projects/p/chats/$id.jsonl" <<END
{"type":"user","message":{"parts":[{"text":"hello"}]}}
{"type":"system","systemPayload":{"uiEvent":{"event.name":"qwen-code.api_error","error_message":"429 $OPENAI_API_KEY waits"}}}
END
echo '{"type":"system","subtype":"init"}'
exec sleep 300
"""


@pytest.mark.fault(15)
def test_a_silent_clis_transcript_tells_the_reason_and_no_secret(serve: Callable[..., Harness], tmp_path: Path) -> None:
    cli = tmp_path / "qwen"
    cli.write_text(NOTES)
    cli.chmod(0o755)
    table = f'[backends.notes]\nkind = "qwen"\ncommand = ["{cli}"]\nenv = {{ OPENAI_API_KEY = "canary-key-0001" }}\n'
    daemon = serve(raw=f"{table}[backends.notes.timeouts]\nmodel_idle = 0.8\nterm_grace = 0.3\n")
    end = daemon.new(backend="notes").ask("hello")
    assert (end["outcome"], end["error"]["kind"], end["error"]["http_status"]) == ("timed_out", "rate_limit", 429)
    assert end["error"]["message"].endswith("failed: 429 [redacted] waits")


@pytest.mark.fault(13)
def test_no_exit_after_the_answer_is_a_success_and_the_process_is_ended(hasty: Harness) -> None:
    session = hasty.new()
    end = session.ask("done\n@linger forever")
    assert (end["outcome"], end["text"]) == ("completed", "done") and "error" not in end
    assert session.events("process_exited")[0]["ended_by"] == "watchdog:linger" and not session.processes()


@pytest.mark.fault(33)
@pytest.mark.fault(66)
@pytest.mark.parametrize("work", ["@background 1.2 it is done", "@delegate 1.2 a report => it is done"])
def test_a_one_shot_turn_lasts_until_its_background_work_is_answered(hasty: Harness, work: str) -> None:
    session = hasty.new()
    end = session.ask(f"{work}\nanswered")
    assert (end["outcome"], end["text"]) == ("completed", "it is done")
    assert [
        event["blocks"][0]["text"] for event in session.events("message") if event["blocks"][0]["kind"] == "text"
    ] == ["answered", "it is done"]
    assert {event.get("turn_id") for event in session.events() if event["type"] in ("task", "message")} == {"t1"}
    assert session.types().count("process_started") == session.types().count("process_exited") == 1
    assert session.ask("third")["turn_id"] == "t2"


def test_prompts_while_background_work_is_answered_get_turns_of_their_own(hasty: Harness) -> None:
    session = hasty.new()
    session.prompt("@background 0.4 follow-up")
    session.await_event("task")
    for _ in range(30):
        session.prompt("queued")
    until(lambda: session.get()["state"] == "idle" and not session.get()["queue"])
    ids = [event["turn_id"] for event in session.events("turn_completed")]
    assert len(set(ids)) == len(ids) == 31


DELEGATES = "@delegate 300 a report => it is done\nI wait for it."


@pytest.mark.parametrize(("limit", "kind"), [("background", "idle_timeout"), ("turn", "turn_timeout")])
def test_a_limit_that_cuts_off_sub_agents_is_no_success_with_the_words_that_wait_for_them(
    hasty: Harness, limit: str, kind: str
) -> None:
    session = hasty.new(timeouts={limit: 0.8})
    end = session.ask(DELEGATES)
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", kind)
    assert end["text"] in ("", "I wait for it.") and not session.processes()


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_an_interrupt_of_sub_agents_is_an_interrupted_turn(hasty: Harness, mode: str) -> None:
    session = hasty.new(mode=mode)
    session.prompt(DELEGATES)
    session.await_event("message_stop", stop_reason="end_turn")
    session.call("interrupt")
    assert session.end_of("t1")["outcome"] == "interrupted"


def test_an_interrupt_behind_a_whole_answer_takes_nothing_from_it(hasty: Harness) -> None:
    """The CLI only has to leave."""
    session = hasty.new(timeouts={"linger": 30})
    session.prompt("the answer\n@linger forever")
    until(lambda: (session.get()["watch"] or {}).get("phase") == "linger")
    session.call("interrupt")
    end = session.end_of("t1")
    assert (end["outcome"], end["text"]) == ("completed", "the answer")


def test_background_work_has_a_budget(hasty: Harness) -> None:
    session = hasty.new(timeouts={"background": 0.6})
    assert session.ask("answered\n@background 300 never")["outcome"] == "completed"
    assert session.events("process_exited")[0]["ended_by"] == "watchdog:background"
    assert not session.processes()


@pytest.mark.fault(16)
@pytest.mark.parametrize("noise", ["@drip 0.1", "@pings 0.1"])
def test_the_turn_limit_ends_what_never_falls_silent(hasty: Harness, noise: str) -> None:
    session = hasty.new(timeouts={"turn": 1.2})
    end = session.ask(f"a word\n{noise}")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "turn_timeout")
    assert "1.2 s" in end["error"]["message"]
    assert session.events("watchdog", action="fired")[0]["phase"] == "turn"


@pytest.mark.fault(16)
def test_the_turn_limit_ends_a_flood_too(hasty: Harness) -> None:
    session = hasty.new(timeouts={"turn": 1.2})
    assert session.ask("@stream 100000000 50")["error"]["kind"] == "turn_timeout"


@pytest.mark.fault(11)
def test_a_cli_that_ignores_sigterm_is_killed_on_its_deadline(hasty: Harness) -> None:
    session = hasty.new()
    assert session.ask("@ignore-int\n@ignore-term\n@stall")["outcome"] == "timed_out"
    assert session.events("process_exited")[0]["signal"] == signal.SIGKILL


@pytest.mark.fault(12)
def test_a_stopped_cli_is_killed_all_the_same(hasty: Harness) -> None:
    session = hasty.new(timeouts={"tool_idle": 0.5})
    assert session.ask("a word\n@bash kill -STOP $PPID; sleep 300")["outcome"] == "timed_out"
    assert session.events("process_exited")[0]["signal"] == signal.SIGKILL and not session.processes()


@pytest.mark.fault(21)
def test_a_pause_of_the_daemon_kills_no_healthy_turn_and_spares_no_hung_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"model_idle": 1.0, "term_grace": 0.3})
    healthy, talking, hung = (daemon.new() for _ in range(3))
    healthy.prompt("a word\n@sleep 0.2\n@bash sleep 2.6\nand on")
    talking.prompt("a word\n@stream 60 50 0.05")
    hung.prompt("a word\n@stall")
    for session in (healthy, talking, hung):
        session.await_event("content_delta")
    daemon.signal(signal.SIGSTOP)
    hold = daemon.cwd / "held"
    with open(hold, "w"):
        until(lambda: _idle_for(hold, 2.6))
    daemon.signal(signal.SIGCONT)
    assert healthy.end_of("t1")["outcome"] == talking.end_of("t1")["outcome"] == "completed"
    assert hung.end_of("t1")["error"]["kind"] == "idle_timeout"
    assert [e["action"] for e in hung.events("watchdog")][-1] == "fired"


def _idle_for(path: Path, seconds: float) -> bool:
    """How long ago the file was made: a pause has a length, and nothing to poll for."""
    import time

    return time.time() - path.stat().st_mtime >= seconds


@pytest.mark.fault(82)
@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_question_for_a_person_is_no_start_and_stands_in_the_error(
    serve: Callable[..., Harness], tmp_path: Path, stream: str
) -> None:
    asks = tmp_path / "asks"
    version = '[ "$1" = --version ] && echo "1.0.0 (clisup demo)" && exit'
    asks.write_text(f"#!/bin/sh\n{version}\necho 'Ok to proceed? (y)'{stream}\nexec sleep 300\n")
    asks.chmod(0o755)
    daemon = serve(demo={"command": [str(asks)]}, timeouts={"startup": 0.4, "model_idle": 60, "term_grace": 0.3})
    error = daemon.new().ask("hello")["error"]
    assert error["kind"] == "startup_timeout" and "Ok to proceed? (y)" in error["message"]


@pytest.mark.fault(97)
def test_a_slow_start_names_the_programs_that_the_cli_waits_for_and_none_of_their_arguments(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    server, waits = tmp_path / "slow-server", tmp_path / "waits"
    server.write_text("#!/bin/sh\nsleep 300; exit\n")
    version = '[ "$1" = --version ] && echo "1.0.0 (clisup demo)" && exit'
    waits.write_text(f"#!/bin/sh\n{version}\n/bin/sh {server} --token=s3cret &\nwait\n")
    waits.chmod(0o755)
    daemon = serve(demo={"command": [str(waits)]}, timeouts={"startup": 0.6, "model_idle": 60, "term_grace": 0.3})
    error = daemon.new().ask("hello")["error"]
    assert error["kind"] == "startup_timeout" and "sh slow-server" in error["message"]
    assert "s3cret" not in error["message"]


@pytest.mark.fault(64)
def test_a_refused_login_is_not_retried_for_minutes(hasty: Harness) -> None:
    session = hasty.new()
    end = session.ask("@retry authentication 1000")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "authentication")
    assert not end["error"].get("retryable") and len(session.events("retry")) < 100


def test_other_retries_go_on(hasty: Harness) -> None:
    session = hasty.new()
    assert session.ask("@retry overloaded 3\nat last")["outcome"] == "completed"
    assert len(session.events("retry")) == 3

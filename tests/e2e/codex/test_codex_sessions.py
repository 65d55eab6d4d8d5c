"""Rollout files of the real codex: forks, histories, and another codex on the same thread."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.fake_api import FAKE_KEY, prompts
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.provider import KEY_NAME, codex_binary, provider
from tests.e2e.codex.scenarios import SLOW, UNKNOWN_SESSION, Scenario, remember, run, say
from tests.e2e.lab import poll
from tests.e2e.pictures import PNG_BASE64
from tests.e2e.scenarios import in_turn
from tests.e2e.test_native_session_lists import keep

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
MEMORY = Scenario("memory", remember)
MODES = pytest.mark.parametrize("mode", ["one-shot", "live"])
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "  My name is Ada. /cost \u2028 \U0001f600\n"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "of another maker", "signature": "s"},
        {"type": "text", "text": "I look, Ada."},
        {"type": "tool_use", "id": "c1", "name": "exec_command", "input": {"cmd": "ls", "deep": {"a": [1, None]}}},
        {"type": "tool_use", "id": "c2", "name": "mcp__good__add", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "port = 80"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": [
            {"type": "text", "text": "no such"}, {"type": "image", "media_type": "image/png", "data": PNG_BASE64}]},
    ]},
    {"role": "assistant", "content": "At 80."},
    {"role": "user", "content": [
        {"type": "image", "media_type": "image/png", "data": PNG_BASE64}, {"type": "text", "text": "And this?"}]},
    {"role": "assistant", "content": "A point."},
]  # fmt: skip
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}"}
AS_SENT: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": HISTORY[0]["content"]}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look, Ada."}]},
    {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "ls", "deep": {"a": [1, null]}}', "call_id": "c1"},
    {"type": "function_call", "name": "add", "namespace": "mcp__good", "arguments": "{}", "call_id": "c2"},
    {"type": "function_call_output", "call_id": "c1", "output": "port = 80"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "no such"}, IMAGE]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "At 80."}]},
    {"type": "message", "role": "user", "content": [IMAGE, {"type": "input_text", "text": "And this?"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A point."}]},
]  # fmt: skip


def fork(here: CodexLab, session: str, **params: Any) -> str:
    with here.client() as client:
        return str(client.call("session/fork", session_id=session, **params)["session_id"])


def native(here: CodexLab, session: str) -> str:
    with here.client() as client:
        return str(client.call("session/get", session_id=session)["native_session_id"])


def rollout(here: CodexLab, session: str) -> Path:
    (path,) = here.codex_home.glob(f"sessions/*/*/*/rollout-*-{native(here, session)}.jsonl")
    return path


def sent(here: CodexLab) -> str:
    """The input of the last request. codex numbers the prefix of its own instructions anew in each process."""
    return json.dumps([
        {name: value for name, value in entry.items() if name != "id"} for entry in here.api.main_requests[-1].body["input"]
    ])  # fmt: skip


def conversation(here: CodexLab) -> list[dict[str, Any]]:
    """The last request without what codex says of the machine."""
    found = [{k: v for k, v in entry.items() if k != "id"} for entry in here.api.main_requests[-1].body["input"]]
    own = ("developer",)
    return [e for e in found if e.get("role") not in own and "<environment_context>" not in json.dumps(e)]


def by_hand(here: CodexLab, *words: str) -> subprocess.CompletedProcess[str]:
    """codex as a person starts it: `codex exec`."""
    here.asked_by_others = True
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), KEY_NAME: FAKE_KEY}
    argv = [str(codex_binary()), "exec", "--skip-git-repo-check", *provider(here.api.url), *words]
    return subprocess.run(
        argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=True
    )


# Forks


@MODES
def test_a_fork_at_a_turn_has_that_turn_and_the_new_prompt_alone(lab: Lab, mode: str) -> None:
    here = lab(MEMORY)
    source = here.open(mode=mode)
    here.turn("My name is Ada.", session=source)
    here.turn("Second prompt.", session=source)
    expected = sent(here)
    here.turn("Third prompt.", session=source)
    before = rollout(here, source).read_bytes()
    forked = fork(here, source, at_turn="t1")
    here.turn("Another second.", session=forked)
    assert sent(here).replace("Another second.", "Second prompt.") == expected
    assert rollout(here, source).read_bytes() == before
    assert native(here, forked) == forked and here.events(forked, "session_init")[0]["native_session_id"] == forked
    here.turn("Fourth prompt.", session=source)
    assert "Third prompt." in sent(here) and "Another" not in sent(here)
    here.turn("Another third.", session=forked)
    assert "Another second." in sent(here) and "Third prompt." not in sent(here)


@MODES
def test_a_whole_fork_is_on_its_own_while_the_source_goes_on(lab: Lab, mode: str) -> None:
    here = lab(MEMORY)
    source = here.open(mode=mode)
    here.turn("My name is Ada.", session=source)
    here.turn("Second prompt.", session=source)
    forked = fork(here, source)
    here.turn("Only in the source.", session=source)
    expected = sent(here)
    here.turn("Only in the fork.", session=forked)
    assert sent(here).replace("Only in the fork.", "Only in the source.") == expected
    assert not here.events(source, "notice") and not here.events(forked, "notice")


def test_the_usage_of_a_fork_is_its_own(lab: Lab) -> None:
    here = lab(MEMORY)
    source = here.turn("My name is Ada.")["session_id"]
    second = here.turn("Again.", session=source)
    again = here.turn("Again.", session=fork(here, source))
    assert again["usage"]["input_tokens"] <= second["usage"]["input_tokens"] + 10
    assert 0 < again["cost_usd"] < 1.2 * second["cost_usd"]


def test_a_turn_with_tools_and_one_without_an_answer_are_places_to_fork_at(lab: Lab) -> None:
    tool = run("echo out")
    here = lab(Scenario("tools", in_turn(tool, say("First."), run(SLOW), say("Third."), say("Fourth."), say("Fifth."))))
    source = here.turn("Use your tools.")["session_id"]
    here.prompt(source, "Slowly.")
    here.wait_for(source, "tool_use", turn_id="t2")
    running = fork(here, source)
    with here.client() as client:
        assert client.call("session/interrupt", session_id=source)["outcome"] == "interrupted"
    here.turn("After it.", session=source)
    keep(rollout(here, source), "codex_turns")
    interrupted = fork(here, source, at_turn="t2")
    here.turn("In the fork.", session=interrupted)
    assert "Slowly." in sent(here) and "After it." not in sent(here)
    here.turn("In the other.", session=running)
    assert "Use your tools." in sent(here) and "out" in sent(here) and "Slowly." not in sent(here)


def test_a_terminals_codex_goes_on_from_a_fork(lab: Lab) -> None:
    here = lab(MEMORY)
    source = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=source)
    forked = fork(here, source, at_turn="t1")
    assert "My name is Ada." in by_hand(here, "resume", forked, "By hand.").stdout
    assert "By hand." in sent(here) and "Second prompt." not in sent(here)


def test_a_thread_that_a_person_has_forked_is_taken_up_and_forked_again(lab: Lab) -> None:
    here = lab(MEMORY)
    by_hand(here, "My name is Ada.")
    with here.client() as client:
        [first] = client.call("backend/sessions", cwd=str(here.cwd))["sessions"]
        by_hand(here, "fork", first["native_session_id"], "Forked by hand.")
        found = client.call("backend/sessions", cwd=str(here.cwd))["sessions"]
    second = next(item["native_session_id"] for item in found if item != first)
    session = here.open(resume_native_id=second)
    forked = fork(here, session)
    here.turn("In the fork.", session=forked)
    assert all(text in sent(here) for text in ("Ada", "Forked by hand.", "In the fork."))


def test_what_cannot_be_forked_is_refused_by_its_kind(lab: Lab) -> None:
    here = lab(MEMORY)
    empty = here.open()
    session = here.turn("My name is Ada.")["session_id"]
    with here.client() as client:
        for source, params in ((empty, {}), (session, {"at_turn": "t7"})):
            with pytest.raises(ClisupError) as refused:
                client.call("session/fork", session_id=source, **params)
            assert refused.value.kind == "turn_not_found"
        taken = native(here, session)
        with pytest.raises(ClisupError) as refused:
            client.call("session/fork", session_id=session, session_id_new=taken)
        assert refused.value.kind == "session_busy"


# Histories


@MODES
def test_the_api_gets_exactly_these_messages_and_the_new_prompt(lab: Lab, mode: str) -> None:
    here = lab(Scenario("text", say("Well.")))
    here.turn(
        "Of another session."
    )  # only the first codex of a CODEX_HOME looks for files, and gives them its provider
    session = here.open(history=HISTORY, mode=mode, system_prompt="BEWARE OF DOGS")
    assert here.turn("What now?", session=session)["outcome"] == "completed"
    prompted = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What now?"}]}
    assert conversation(here) == [*AS_SENT, prompted]
    assert "BEWARE OF DOGS" in sent(here)
    assert here.events(session, "session_init")[0]["native_session_id"] == session
    here.turn("And then?", session=session)
    assert conversation(here)[: len(AS_SENT) + 1] == [*AS_SENT, prompted]
    assert not here.events(session, "unparsed") and not here.events(session, "notice")


def test_a_terminals_codex_reads_a_history_after_the_first_turn_and_lists_it_before(lab: Lab) -> None:
    here = lab(MEMORY)
    session = here.open(history=HISTORY)
    with here.client() as client:
        [listed] = client.call("backend/sessions", cwd=str(here.cwd))["sessions"]
    assert (listed["session_id"], listed["title"][:15]) == (session, "My name is Ada.")
    here.turn("What now?", session=session)
    by_hand(here, "resume", session, "By hand.")
    assert "At 80." in sent(here) and "By hand." in prompts(here.api.main_requests[-1].body)


def test_a_history_can_be_forked_before_its_first_turn(lab: Lab) -> None:
    here = lab(MEMORY)
    session = here.open(history=HISTORY)
    forked = fork(here, session)
    here.turn("In the fork.", session=forked)
    assert "At 80." in sent(here)
    assert here.turn("In the source.", session=session)["outcome"] == "completed"
    assert "In the fork." not in sent(here)


def test_an_id_that_codex_has_a_thread_of_takes_no_history(lab: Lab) -> None:
    here = lab(MEMORY)
    session = here.turn("My name is Ada.")["session_id"]
    taken = native(here, session)
    with here.client() as client:
        client.call("session/close", session_id=session)
        with pytest.raises(ClisupError) as refused:
            client.call("session/new", backend="codex", cwd=str(here.cwd), session_id=taken, history=HISTORY)
    assert refused.value.kind == "session_exists"


# Another codex on the thread


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_another_codex_on_the_thread_is_seen_before_the_run_with_its_pid(lab: Lab, mode: str) -> None:
    here = lab(MEMORY)
    source = here.open(mode=mode)
    here.turn("My name is Ada.", session=source)
    thread = native(here, source)
    for pid in here.pids(source):
        poll(lambda pid=pid: mode == "live" or not Path(f"/proc/{pid}").exists(), "the end of the turn's process")
    if mode == "live":
        assert here.turn("The own process is no stranger.", session=source)["outcome"] == "completed"
        with here.client() as client:
            client.call("session/close", session_id=source)
        source = here.open(mode=mode, resume_native_id=thread)
    with here.foreign(thread) as pid:
        refused = here.turn("Second prompt.", session=source)
        assert (refused["outcome"], refused["error"]["kind"]) == ("failed", "session_busy")
        assert f"process {pid} has" in refused["error"]["message"] and refused["error"]["retryable"]
        with here.client() as client, pytest.raises(ClisupError) as taken:
            client.call("session/new", backend="codex", cwd=str(here.cwd), resume_native_id=thread)
        assert taken.value.kind == "session_busy"
    assert "Ada" in here.turn("What did I say?", session=source)["text"]


def test_a_codex_that_has_gone_leaves_its_writing_to_be_told(lab: Lab) -> None:
    here = lab(MEMORY)
    session = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=session)
    assert not here.events(session, "notice")
    by_hand(here, "resume", native(here, session), "By hand.")
    here.turn("Third prompt.", session=session)
    (told,) = here.events(session, "notice")
    assert told["code"] == "foreign_writes" and "longer" in told["message"]
    assert "By hand." in sent(here)
    here.turn("In the fork.", session=fork(here, session, at_turn="t2"))
    assert "By hand." not in sent(here)


def test_a_lock_without_a_process_holds_nobody_up(lab: Lab) -> None:
    here = lab(MEMORY)
    session = here.turn("My name is Ada.")["session_id"]
    (here.codex_home / "thread-writer-locks" / f"{native(here, session)}.lock").touch()
    assert here.turn("Second prompt.", session=session)["outcome"] == "completed"
    with here.client() as client:
        client.call("session/new", backend="codex", cwd=str(here.cwd), resume_native_id=UNKNOWN_SESSION)

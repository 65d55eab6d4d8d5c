"""`session/fork` of sessions of the real claude."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import QUIET, ClaudeLab, claude_binary

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}


def fork(here: ClaudeLab, session: str, **params: Any) -> str:
    with here.client() as client:
        return str(client.call("session/fork", session_id=session, **params)["session_id"])


def transcript(here: ClaudeLab, session: str) -> Path:
    (path,) = (here.home / ".claude" / "projects").glob(f"*/{session}.jsonl")
    return path


def sent(here: ClaudeLab, *, instead: tuple[str, str] = ("", "")) -> str:
    """The messages of the last request, without what marks a place in the cache; with one text in place of another."""
    messages = json.loads(json.dumps(here.api.main_requests[-1].body["messages"]))
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else []:
            block.pop("cache_control", None)
    return json.dumps(messages).replace(json.dumps(instead[0]), json.dumps(instead[1]))


def vanilla(here: ClaudeLab, session: str, prompt: str) -> str:
    """What `claude -p --resume` says, started by hand."""
    here.asked_by_others = True
    env = {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET}
    argv = [str(claude_binary()), "-p", "--resume", session, prompt]
    done = subprocess.run(
        argv, env=env, cwd=here.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_after_a_fork_at_a_turn_the_request_holds_that_turn_and_the_new_prompt_alone(
    lab: Callable[..., ClaudeLab],
) -> None:
    here = lab("memory")
    source = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=source)
    expected = sent(here)
    here.turn("Third prompt.", session=source)
    before = transcript(here, source)
    bytes_before, stat_before = before.read_bytes(), before.stat()
    forked = fork(here, source, at_turn="t1")
    here.turn("Another second.", session=forked)
    assert sent(here, instead=("Another second.", "Second prompt.")) == expected
    assert before.read_bytes() == bytes_before
    assert (before.stat().st_mtime_ns, before.stat().st_ino) == (stat_before.st_mtime_ns, stat_before.st_ino)
    assert transcript(here, forked).parent == before.parent
    assert here.events(forked, "session_init")[0]["native_session_id"] == forked
    # the source goes on as if nothing had been, and so does the fork
    here.turn("Fourth prompt.", session=source)
    assert all(text in sent(here) for text in ("Ada", "Second prompt.", "Third prompt.")) and "Another" not in sent(
        here
    )
    here.turn("Another third.", session=forked)
    assert "Another second." in sent(here) and "Third prompt." not in sent(here)


def test_a_vanilla_claude_goes_on_from_a_fork(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    here.asked_by_others = True
    source = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=source)
    forked = fork(here, source, at_turn="t1")
    assert "My name is Ada." in vanilla(here, forked, "What did I say?")
    assert "Second prompt." not in sent(here)


def test_a_whole_fork_is_on_its_own_while_the_source_goes_on(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    source = here.turn("My name is Ada.")["session_id"]
    here.turn("Second prompt.", session=source)
    forked = fork(here, source)
    here.turn("Only in the source.", session=source)
    expected = sent(here)
    here.turn("Only in the fork.", session=forked)
    assert sent(here, instead=("Only in the fork.", "Only in the source.")) == expected
    assert "Only in the source." not in sent(here)


def test_the_cost_of_a_fork_is_its_own(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("text")
    first = here.turn()
    source = first["session_id"]
    second = here.turn("And again.", session=source)
    forked = fork(here, source)
    again = here.turn("And again.", session=forked)
    with here.client() as client:
        summary = client.call("session/get", session_id=forked)
    assert 0 < again["cost_usd"] < 1.2 * second["cost_usd"]
    assert summary["cost_usd"] == pytest.approx(again["cost_usd"])
    assert here.turn("A third.", session=source)["cost_usd"] < 1.2 * second["cost_usd"]


@pytest.mark.parametrize("scenario", ["parallel_tools", "subagent", "cut_after_tool", "max_tokens"])
def test_a_turn_with_much_in_it_is_whole_in_the_fork(lab: Callable[..., ClaudeLab], scenario: str) -> None:
    here = lab(scenario)
    source = here.turn("Use your tools.", **BYPASS)["session_id"]
    here.turn("Second prompt.", session=source)
    expected = sent(here)
    forked = fork(here, source, at_turn="t1")
    here.turn("Another second.", session=forked)
    assert sent(here, instead=("Another second.", "Second prompt.")) == expected


def test_a_fork_at_a_turn_with_background_work_has_the_answer_to_that_work(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("background_bash")
    source = here.turn("Use your tools.", **BYPASS)["session_id"]
    here.turn("Third prompt.", session=source)
    forked = fork(here, source, at_turn="t1")
    here.turn("Another.", session=forked)
    assert "task-notification" in sent(here) and "It has finished." in sent(here)
    assert "Third prompt." not in sent(here)


def test_a_follow_up_of_a_live_session_is_a_turn_to_fork_at_or_before(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("background_bash")
    source = here.open(mode="live", **BYPASS)
    here.turn("Use your tools.", session=source)
    here.wait_for(source, "turn_completed", turn_id="t2")
    here.turn("Third prompt.", session=source)
    with_it, without = fork(here, source, at_turn="t2"), fork(here, source, at_turn="t1")
    here.turn("Another.", session=with_it)
    assert "task-notification" in sent(here) and "Third prompt." not in sent(here)
    words = transcript(here, without).read_text()
    assert "Started it." in words and "<task-id>" not in words
    again = here.turn(
        "Another.", session=without
    )  # for its CLI the task had not ended: it notes that before the prompt
    assert (again["turn_id"], again["text"]) == ("t1", "It has finished.")
    assert "It has finished." not in sent(here) and "Third prompt." not in sent(here)


def test_an_interrupted_turn_and_one_that_was_killed_are_places_to_fork_at(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("stall_then_answer")
    source = here.open()
    here.prompt(source, "First prompt.")
    here.wait_for(source, "content_delta")
    with here.client() as client:
        client.call("session/interrupt", session_id=source)
    here.turn("Second prompt.", session=source)
    expected = sent(here)
    forked = fork(here, source, at_turn="t1")
    here.turn("Another second.", session=forked)
    assert "[Request interrupted by user]" in expected
    assert sent(here, instead=("Another second.", "Second prompt.")) == expected


def test_a_fork_before_a_compaction_has_the_words_and_one_after_it_the_summary(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("compact")
    source = here.turn("First prompt.")["session_id"]
    here.turn("Second prompt.", session=source)
    with here.client() as client:
        done = client.call("session/prompt", session_id=source, prompt="/compact", expand=True, wait=True)
    assert done["outcome"] == "completed"
    here.turn("Fourth prompt.", session=source)
    before, after = fork(here, source, at_turn="t2"), fork(here, source, at_turn=done["turn_id"])
    here.turn("Another.", session=before)
    assert "Second prompt." in sent(here) and "being continued" not in sent(here)
    here.turn("Another.", session=after)
    assert "being continued" in sent(here) and "Fourth prompt." not in sent(here)


def test_turns_of_one_live_process_are_told_apart(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    source = here.turn("My name is Ada.", mode="live")["session_id"]
    here.turn("Second prompt.", session=source)
    expected = sent(here)
    here.turn("Third prompt.", session=source)
    early, whole = fork(here, source, at_turn="t1"), fork(here, source)  # its process lives, and writes late
    here.turn("Another second.", session=early)
    assert sent(here, instead=("Another second.", "Second prompt.")) == expected
    here.turn("Another fourth.", session=whole)
    assert "Third prompt." in sent(here)
    here.turn("Fourth prompt.", session=source)
    assert "Third prompt." in sent(here) and "Another" not in sent(here)
    assert len(here.events(source, "process_started")) == 1
    assert not [e for e in here.events(source, "notice") if e["code"] == "foreign_writes"]

"""`clisup handover`: another backend goes on, in the same place and with the conversation so far."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run
from harness import Harness
from session_probe import SessionProbe
from test_worktrees import Project, opened, project, tree_of

from clisup.client import handover as handover_module
from clisup.client.handover import HandedConversation, HandedTurn
from tests.fakecli import COMMAND

__all__ = ["project"]

AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Harness]:
    """A daemon with `other`, which takes histories, and `agent`, which does not."""
    raw = f'[backends.other]\nkind = "claude"\ncommand = {json.dumps(list(COMMAND))}\n'
    daemon = Harness(raw=raw + f'[backends.agent]\nkind = "acp"\ncommand = {json.dumps(AGENT)}\n')
    daemon.start()
    yield daemon
    daemon.close()


def handed(daemon: Harness, session: SessionProbe, *args: str) -> dict[str, Any]:
    done = run(daemon, "handover", session.id[:8], "--json", *args)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def history(session: SessionProbe) -> list[Any]:
    return [json.loads(line) for line in session.ask("@history")["text"].splitlines()]


def said(session: SessionProbe) -> str:
    return "\n".join(str(line) for line in history(session))


def test_the_new_session_has_the_conversation_and_the_place_of_the_first(daemon: Harness, project: Project) -> None:
    session = opened(daemon, project, title="Parser", labels={"ticket": "4711"})
    session.ask("What is broken?")
    session.ask("word " * 20_000)
    done = handed(daemon, session, "-b", "demo")
    assert (done["turns"], done["carried"], done["turn_id"], done["missing"]) == (2, "history", None, [])
    new = SessionProbe(daemon, done["session_id"])
    row = new.get()
    assert (row["title"], row["labels"], row["cwd"]) == ("Parser", {"ticket": "4711"}, str(tree_of(session)))
    assert row["worktree"]["path"] == str(tree_of(session))
    told = said(new)
    assert "What is broken?" in told
    assert told.count("word ") >= 20_000  # the whole of a long prompt, which its event has cut
    session.call("close")
    assert tree_of(new).is_dir()
    new.call("close")


def test_a_session_without_a_worktree_is_handed_over_in_its_directory(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("Hello.")
    done = run(daemon, "handover", session.id, "-b", "demo", "Go on.")
    assert done.returncode == 0, done.stderr
    new = SessionProbe(daemon, done.stdout.strip())
    assert new.end_of("t1")["outcome"] == "completed"
    assert new.get()["cwd"] == str(daemon.cwd)
    assert "demo has 1 turn of demo as its history" in done.stderr


def test_a_backend_without_histories_gets_the_conversation_with_its_first_prompt(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("What is broken?")
    refused = run(daemon, "handover", session.id, "-b", "agent")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "takes no history" in refused.stderr
    done = handed(daemon, session, "-b", "agent", "say Fine.")
    assert (done["carried"], done["turn_id"]) == ("prompt", "t1")
    text = SessionProbe(daemon, done["session_id"]).events("prompt_accepted")[0]["text"]
    assert text.startswith("Here is the conversation so far in this directory, with demo.")
    assert "## User\n\nWhat is broken?\n\n## Assistant\n\n" in text
    assert text.endswith("## End of the conversation so far\n\nsay Fine.")


def test_a_turn_without_an_answer_and_a_running_one_are_named(daemon: Harness) -> None:
    session = daemon.new()
    nothing = run(daemon, "handover", session.id, "-b", "demo")
    assert (nothing.returncode, "no turn of it has ended" in nothing.stderr) == (2, True)
    session.prompt("@stall")
    session.await_event("session_init")
    session.call("interrupt")
    session.prompt("@stall")
    session.await_event("session_init", 2)
    done = handed(daemon, session, "-b", "demo")
    assert done["missing"] == ["turn t2, which has not ended"]
    assert "(The turn ended without an answer: interrupted.)" in said(SessionProbe(daemon, done["session_id"]))
    session.call("close")


def test_without_kept_prompts_their_beginnings_go_and_the_command_says_so(serve: Any) -> None:
    daemon = serve(daemon={"keep_prompts": "off"})
    session = daemon.new()
    session.ask("Remember this. " + "x" * 500)
    done = handed(daemon, session, "-b", "demo")
    assert done["missing"] == ["most of the prompt of turn t1, which was not kept (daemon.keep_prompts)"]
    assert "Remember this." in said(SessionProbe(daemon, done["session_id"]))


def test_a_fork_has_the_turns_before_it_and_not_those_of_its_origin_after_it(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("The first question.")
    fork = SessionProbe(daemon, session.call("fork")["session_id"])
    session.ask("A question after the fork.")
    again = SessionProbe(daemon, fork.call("fork")["session_id"])
    fork.ask("Not in the second fork.")
    again.ask("The last question.")
    session.call("close")
    done = handed(daemon, again, "-b", "demo")
    assert (done["turns"], done["missing"]) == (2, [])
    told = said(SessionProbe(daemon, done["session_id"]))
    assert told.index("The first question.") < told.index("The last question.")
    assert "after the fork" not in told and "Not in" not in told


def test_a_fork_whose_origin_was_deleted_says_that_its_turns_are_missing(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("Hello.")
    fork = SessionProbe(daemon, session.call("fork")["session_id"])
    fork.ask("Go on.")
    session.call("close")
    session.call("delete")
    done = run(daemon, "handover", fork.id, "-b", "demo")
    note = f"not handed over: what was said before the fork of session {session.id[:8]}, which was deleted"
    assert (done.returncode, note in done.stderr) == (0, True), done.stderr


def test_an_unknown_backend_opens_nothing(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("Hello.")
    before = len(daemon.call("session/list", limit=1000)["sessions"])
    done = run(daemon, "handover", session.id, "-b", "nowhere")
    assert (done.returncode, "no such backend" in done.stderr) == (2, True)
    assert len(daemon.call("session/list", limit=1000)["sessions"]) == before


def test_a_conversation_that_is_too_long_loses_its_oldest_turns_and_says_so() -> None:
    talk = HandedConversation([HandedTurn(f"t{number}", ["q" * 50], "a" * 50) for number in range(1, 6)])
    talk.shorten(250)
    assert [turn.id for turn in talk.turns] == ["t4", "t5"]
    assert talk.missing == ["the oldest 3 turns are left out, for the size"]


def test_one_turn_that_is_too_long_is_cut() -> None:
    talk = HandedConversation([HandedTurn("t1", ["early"], "early"), HandedTurn("t2", ["q" * 900], "a" * 900)])
    talk.shorten(200)
    assert [turn.id for turn in talk.turns] == ["t2"]
    assert talk.turns[0].size <= 200
    assert talk.turns[0].answer.endswith("[...]")
    assert handover_module.TEXT_LIMIT < handover_module.HISTORY_LIMIT

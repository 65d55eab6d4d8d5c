"""The real claude as a live process asks: a client's word reaches it, across a kill of the daemon, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.lab import ClaudeLab

pytestmark = pytest.mark.e2e
Lab = Callable[..., ClaudeLab]


def asked(here: ClaudeLab, session: str) -> dict[str, Any]:
    return here.wait_for(session, "approval_requested", tool_name="Write")


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_tool_runs_only_where_it_is_allowed_and_the_process_lives_on(lab: Lab, decision: str) -> None:
    here = lab("tool_denied")
    session = here.open(mode="live")
    here.prompt(session, "Use your tools.")
    approval = asked(here, session)
    path = approval["input"]["file_path"]
    assert approval["suggestions"] and approval["tool_use_id"]
    here.answer(session, approval, decision, message="Not this one.")
    end = here.wait_for(session, "turn_completed")
    assert end["outcome"] == "completed" and (end.get("denied") or []) == ([] if decision == "allow" else ["Write"])
    (result,) = here.events(session, "tool_result")
    assert bool(result.get("is_error")) == (decision == "deny")
    assert (here.cwd / path).exists() == (decision == "allow")
    if decision == "deny":
        assert result["content"] == "Not this one."
    assert not here.events(session, "process_exited")


def test_an_approval_outlives_a_kill_of_the_daemon(lab: Lab) -> None:
    here = lab("tool_denied")
    session = here.open(mode="live")
    here.prompt(session, "Use your tools.")
    approval = asked(here, session)
    here.kill()
    here.start()
    here.answer(session, approval, "allow", updated_input={**approval["input"], "content": "another content"})
    assert here.wait_for(session, "turn_completed")["outcome"] == "completed"
    assert (here.cwd / approval["input"]["file_path"]).read_text() == "another content"
    (resolved,) = here.events(session, "approval_resolved")
    assert (resolved["by"], resolved["input_changed"]) == ("client", True)
    assert len(here.events(session, "process_started")) == 1


def test_an_interrupt_takes_the_question_away_and_keeps_the_process(lab: Lab) -> None:
    here = lab("tool_denied")
    session = here.open(mode="live")
    here.prompt(session, "Use your tools.")
    asked(here, session)
    with here.client() as client:
        assert client.call("session/interrupt", session_id=session)["outcome"] == "interrupted"
    assert [(e["decision"], e["by"]) for e in here.events(session, "approval_resolved")] == [("cancelled", "end")]
    assert not here.events(session, "process_exited")

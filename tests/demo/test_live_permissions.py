"""Tools of a live demo process ask for their permission, and do what they are allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.demo.conftest import Demo, Talk

MAKES = '@run Bash {"command": "touch made"}\nDone.'
WRITES = '@run Write {"file_path": "new.txt", "content": "old"}\nDone.'


def tool_results(talk: Talk) -> list[dict[str, Any]]:
    """The blocks of all tool results so far."""
    blocks = [frame["message"]["content"][0] for frame in talk.frames if frame["type"] == "user"]
    return [block for block in blocks if block["type"] == "tool_result"]


def test_a_question_says_what_the_tool_would_do(demo: Demo) -> None:
    talk = demo.live()
    talk.say(MAKES)
    asked = talk.asked()
    assert (asked["tool_name"], asked["input"]) == ("Bash", {"command": "touch made"})
    (called,) = (frame for frame in talk.frames if frame["type"] == "assistant")
    assert asked["tool_use_id"] == called["message"]["content"][0]["id"]
    assert asked["permission_suggestions"][0]["rules"] == [{"toolName": "Bash", "ruleContent": "touch made *"}]
    assert not (demo.cwd / "made").exists()


def test_what_is_allowed_really_happens(demo: Demo) -> None:
    talk = demo.live()
    talk.say(f"{MAKES[:-6]}\n{WRITES}")
    talk.asked()
    talk.answer("allow")
    assert talk.asked()["input"]["file_path"] == str(demo.cwd / "new.txt")
    talk.answer("allow")
    result = talk.until("result")
    assert (result["permission_denials"], result["result"]) == ([], "Done.")
    assert (demo.cwd / "made").exists()
    assert (demo.cwd / "new.txt").read_text() == "old"


@pytest.mark.parametrize("directive", ["ask", "denied"])
def test_a_pretended_tool_that_is_allowed_says_what_it_would_have_done_and_does_nothing(
    demo: Demo, directive: str
) -> None:
    path = demo.cwd.parent / "written"
    talk = demo.live()
    talk.say(f'@{directive} Bash {{"command": "touch made"}}\n@{directive} Write {{"file_path": "{path}"}}')
    talk.asked()
    talk.answer("allow", updatedInput={"command": "touch made; touch more"})
    talk.asked()
    talk.answer("allow")
    talk.until("result")
    assert [result["content"] for result in tool_results(talk)] == [
        "The demo only pretends. It would have run: touch made; touch more",
        f"The demo only pretends. It would have written: {path}",
    ]
    assert not path.exists() and not [*demo.cwd.glob("m*")]


@pytest.mark.parametrize("directive", ["ask", "denied"])
def test_a_pretended_tool_does_nothing_in_a_run_that_may_do_everything(demo: Demo, directive: str) -> None:
    demo.env["IS_SANDBOX"] = "1"
    script = f'@{directive} Bash {{"command": "touch made"}}\n@{directive} Write {{"file_path": "made"}}'
    run = demo.run(script, "--permission-mode", "bypassPermissions")
    results = [frame["message"]["content"][0] for frame in run.of("user")]
    assert ["only pretends" in result["content"] for result in results] == [True, True]
    assert not (demo.cwd / "made").exists()


def test_the_input_of_the_answer_is_what_happens(demo: Demo) -> None:
    talk = demo.live()
    talk.say(WRITES)
    talk.asked()
    talk.answer("allow", updatedInput={"file_path": "other.txt", "content": "new"})
    talk.until("result")
    assert (demo.cwd / "other.txt").read_text() == "new"
    assert not (demo.cwd / "new.txt").exists()


def test_a_denied_tool_answers_with_the_reason_and_the_turn_goes_on(demo: Demo) -> None:
    talk = demo.live()
    talk.say(MAKES)
    talk.asked()
    talk.answer("deny", message="not today")
    result = talk.until("result")
    (answered,) = tool_results(talk)
    assert (answered["content"], answered["is_error"]) == ("not today", True)
    assert (result["is_error"], result["result"]) == (False, "Done.")
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Bash"]
    assert not (demo.cwd / "made").exists()


def test_an_error_for_an_answer_is_a_denial_and_only_the_first_answer_counts(demo: Demo) -> None:
    talk = demo.live()
    talk.line('{"type":"control_response","response":{"subtype":"success","request_id":"nobody","response":{}}}')
    talk.say(MAKES)
    talk.asked()
    request = [frame for frame in talk.frames if frame["type"] == "control_request"][-1]["request_id"]
    error = {"subtype": "error", "request_id": request, "error": "no thanks"}
    talk.line(json.dumps({"type": "control_response", "response": error}))
    talk.answer("allow")
    talk.until("result")
    assert tool_results(talk)[0]["content"] == "Tool permission request failed: Error: no thanks"
    assert not (demo.cwd / "made").exists()


def test_an_answer_that_is_none_is_a_denial(demo: Demo) -> None:
    talk = demo.live()
    talk.say(MAKES)
    talk.asked()
    talk.answer("perhaps")
    talk.until("result")
    assert "invalid permission result" in tool_results(talk)[0]["content"]


def test_what_was_remembered_is_not_asked_again_in_this_process(demo: Demo) -> None:
    talk = demo.live()
    talk.say(MAKES)
    suggestions = talk.asked()["permission_suggestions"]
    talk.answer("allow", updatedPermissions=suggestions)
    talk.until("result")
    talk.say(MAKES)
    talk.until("result")
    talk.say('@ask Bash {"command": "touch other"}')
    assert talk.asked()["input"]["command"] == "touch other"


def test_a_mode_that_was_remembered_lets_edits_pass(demo: Demo) -> None:
    talk = demo.live()
    talk.say(WRITES)
    suggestions = talk.asked()["permission_suggestions"]
    assert suggestions == [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    talk.answer("allow", updatedPermissions=suggestions)
    talk.until("result")
    talk.say(WRITES.replace("old", "newer"))
    talk.until("result")
    assert (demo.cwd / "new.txt").read_text() == "newer"


def test_tools_of_one_message_ask_one_after_the_other(demo: Demo) -> None:
    talk = demo.live()
    talk.say('@parallel\n@run Bash {"command": "touch a"}\n@run Bash {"command": "test -e a && touch b"}\n@end')
    assert talk.asked()["input"]["command"] == "touch a"
    talk.answer("allow")
    assert talk.asked()["input"]["command"] == "test -e a && touch b"
    talk.answer("allow")
    talk.until("result")
    assert (demo.cwd / "b").exists()


@pytest.mark.parametrize("directive", ["ask", "denied", "run"])
def test_each_directive_asks_where_somebody_can_answer_and_is_refused_elsewhere(demo: Demo, directive: str) -> None:
    script = f'@{directive} Write {{"file_path": "new.txt", "content": "x"}}'
    talk = demo.live()
    talk.say(script)
    assert talk.asked()["tool_name"] == "Write"
    assert demo.run(script).of("system", "permission_denied")[0]["tool_name"] == "Write"


def test_a_mode_that_asks_nobody_refuses(demo: Demo) -> None:
    talk = demo.live("--permission-mode", "dontAsk")
    talk.say(MAKES)
    assert len(talk.until("result")["permission_denials"]) == 1
    assert "control_request" not in {frame["type"] for frame in talk.frames}


def test_a_one_shot_run_that_may_do_everything_really_runs_an_asking_bash(demo: Demo) -> None:
    demo.env["IS_SANDBOX"] = "1"
    demo.run(MAKES, "--permission-mode", "bypassPermissions")
    assert (demo.cwd / "made").exists()


def test_nobody_left_to_answer_is_a_denial_and_the_turn_is_finished(demo: Demo) -> None:
    talk = demo.live()
    talk.say(MAKES)
    talk.asked()
    run = talk.end()
    assert (run.code, run.text) == (0, "Done.")
    assert "stream closed" in tool_results(talk)[0]["content"]


def test_a_tool_that_was_allowed_is_killed_by_an_interrupt(demo: Demo) -> None:
    talk = demo.live()
    talk.say('@run Bash {"command": "touch began; sleep 600"}')
    talk.asked()
    talk.answer("allow")
    assert Demo.eventually((demo.cwd / "began").exists)
    talk.ask("interrupt")
    talk.until("result")
    assert Demo.eventually(lambda: not demo.survivors())
    assert "control_cancel_request" not in {frame["type"] for frame in talk.frames}

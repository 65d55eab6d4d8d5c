"""What the recorded dialogues with a live claude prove: the facts that a live session depends on, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.backends.recorded import PATHS, Recording, name_of
from tests.e2e.dialogue import uuid_of

LIVE = [path for path in PATHS if path.stem.startswith("live_") and path.parents[1].name == "claude"]
every_dialogue = pytest.mark.parametrize("path", LIVE, ids=name_of)
NAMES = {uuid_of(name): name for name in ("one", "two", "three", "four", *(f"content {number}" for number in range(4)))}
Frame = dict[str, Any]


def heard(name: str) -> list[Frame]:
    return [frame for way, frame in Recording.of(f"claude/{name}").dialogue() if way == "heard"]


def steps(name: str) -> list[str]:
    """The way of each message and turn: `one queued`, `running`, `init one two`, `result one`, and so on."""
    found = []
    for frame in heard(name):
        uuids = " ".join(NAMES.get(uuid, uuid) for uuid in frame.get("user_message_uuids", ()))
        if frame["type"] == "command_lifecycle":
            found.append(f"{NAMES[frame['command_uuid']]} {frame['state']}")
        elif frame["type"] == "result":
            found.append(f"result {uuids}".rstrip())
        elif frame.get("subtype") == "init":
            found.append(f"init {uuids}".rstrip())
        elif frame.get("subtype") == "session_state_changed":
            found.append(frame["state"])
        elif frame["type"] == "control_response":
            found.append(f"answer {frame['response']['request_id']}")
    return found


@every_dialogue
def test_every_message_of_which_something_is_told_was_said_before(path: Path) -> None:
    said: set[str] = set()
    for way, frame in Recording(path).dialogue():
        if way == "said":
            said.add(frame.get("uuid", ""))
        elif frame["type"] == "command_lifecycle":
            assert frame["command_uuid"] in said


@every_dialogue
def test_every_answer_has_its_request_before_it(path: Path) -> None:
    asked: dict[str, set[str]] = {"said": set(), "heard": set()}
    for way, frame in Recording(path).dialogue():
        if frame["type"] == "control_request":
            asked[way].add(frame["request_id"])
        elif frame["type"] == "control_response":
            other = "heard" if way == "said" else "said"
            assert frame["response"]["request_id"] in asked[other]


@every_dialogue
def test_where_the_player_waits_is_where_the_lines_were_said(path: Path) -> None:
    meta = Recording(path).file.meta
    assert {offset for offset, _ in meta.said} == {offset for offset, _ in meta.stdin}
    assert max((count or 0 for _, count in meta.said), default=0) <= sum(line is not None for _, line in meta.stdin)


def test_a_turn_goes_from_running_to_idle_and_its_message_is_named_all_along() -> None:
    turn = ["running", "one queued", "one started", "init one", "result one", "one completed", "idle"]
    assert steps("live_text") == [*turn, *(step.replace("one", "two") for step in turn)]


def test_messages_that_wait_while_the_model_speaks_become_one_turn() -> None:
    assert steps("live_merged")[4:] == [
        "two queued", "three queued", "result one", "one completed", "two started", "three started", "init two three",
        "result two three", "two completed", "three completed", "idle",
    ]  # fmt: skip


def test_a_message_that_waits_at_a_tool_is_taken_into_the_running_turn() -> None:
    assert steps("live_injected")[4:] == [
        "two queued",
        "two started",
        "two completed",
        "result one two",
        "one completed",
        "idle",
    ]


def test_a_message_for_later_gets_a_turn_of_its_own_all_the_same() -> None:
    assert steps("live_later")[4:] == [
        "two queued", "result one", "one completed", "two started", "init two", "result two", "two completed", "idle",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["live_now", "live_now_in_tool"])
def test_a_message_for_now_ends_the_turn_and_that_is_no_error(name: str) -> None:
    first = next(frame for frame in heard(name) if frame["type"] == "result")
    assert (first["subtype"], first["is_error"]) == ("success", False)
    assert first["terminal_reason"].startswith("aborted")
    assert steps(name)[4:7] == ["two queued", "result one", "one cancelled"]


def test_an_interrupt_that_comes_before_its_message_is_started_does_nothing() -> None:
    assert "answer interrupt" in steps("live_interrupt_too_soon")
    assert steps("live_interrupt_too_soon")[-2:] == ["two completed", "idle"]


def test_an_interrupt_leaves_what_waits_unless_it_is_told_otherwise() -> None:
    assert steps("live_interrupt_queued")[5:9] == ["answer interrupt", "result one", "one cancelled", "two started"]
    assert steps("live_interrupt_all")[5:10] == [
        "two cancelled",
        "answer interrupt",
        "result one",
        "one cancelled",
        "idle",
    ]


def test_a_session_is_idle_while_its_background_task_runs_and_wakes_for_it() -> None:
    assert steps("live_background")[:11] == [
        "running", "one queued", "one started", "init one", "result one", "one completed", "idle", "running", "init", "result",
        "idle",
    ]  # fmt: skip


def test_a_message_that_comes_while_a_follow_up_begins_has_its_turn_after_it() -> None:
    told = steps("live_background_race")[7:]
    assert told.index("result") < told.index("two started") < told.index("result two")
    assert "idle" not in told[told.index("result") : -1]


def test_a_failed_turn_leaves_the_process_alive() -> None:
    assert steps("live_http_403")[4:7] == ["result one", "one cancelled", "idle"]
    assert steps("live_http_403")[-3:] == ["result two", "two completed", "idle"]
    assert Recording.of("claude/live_http_403_last").meta["exit_code"] == 1


def test_a_message_that_had_its_turn_is_not_run_again_not_even_in_another_process() -> None:
    assert steps("live_same_uuid").count("result one") == 1
    assert steps("live_memory_same_uuid") == ["two completed", "idle"]


def test_a_slash_in_the_last_text_block_is_a_command_and_a_newline_before_it_prevents_that() -> None:
    results = [frame for frame in heard("live_slash") if frame["type"] == "result"]
    assert [result.get("local_command") for result in results] == ["cost", None, "cost"]

"""The comparison finds each kind of fault, calls it by its name, and calls nothing a fault that is none."""

from __future__ import annotations

import json
from typing import Any

from tests.chaos.compare import Counts, Turn, against, heard, same_bytes, same_events, turns_of, witnessed
from tests.chaos.scripts import Exit, Script

SCRIPT = Script("some text")


def found(counts: Counts) -> dict[str, int]:
    names = ("lost", "doubled", "reordered", "wrong_exits")
    return {name: number for name in names if (number := getattr(counts, name))}


def event(seq: int, type_: str, source: str = "daemon", turn: str = "t1", **fields: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "seq": seq,
        "ts": f"at {seq}",
        "turn_id": turn,
        "source": source,
        "type": type_,
        **fields,
    }


def log(*texts: str, code: int = 0, outcome: str = "completed", first: int = 1) -> list[dict[str, Any]]:
    """The log of a session of one turn that says these texts."""
    events = [event(0, "prompt_accepted"), event(0, "turn_started"), event(0, "process_started", pid=first)]
    events += [event(0, "content_delta", "backend", text=text) for text in texts]
    events += [
        event(0, "process_exited", exit_code=code),
        event(0, "turn_completed", outcome=outcome, duration_s=first),
    ]
    return [{**each, "seq": first + n, "ts": str(first)} for n, each in enumerate(events)]


def turns(*texts: str, **how: Any) -> list[Turn]:
    return turns_of(log(*texts, **how), {})


def verdict(got: list[Turn], want: list[Turn], *scripts: Script) -> dict[str, int]:
    return found(against("here", got, want, scripts or (SCRIPT,)))


# -- what clients heard


def test_each_seq_once_and_in_order_is_no_fault() -> None:
    assert found(heard("a", [1, 2, 3], 3)) == {} and heard("a", [], 0).clean


def test_a_seq_that_never_came_is_lost_also_at_the_end() -> None:
    assert found(heard("a", [1, 4], 6)) == {"lost": 4}


def test_a_seq_that_came_twice_is_doubled() -> None:
    assert found(heard("a", [1, 2, 2, 3, 1], 3)) == {"doubled": 2}


def test_a_seq_that_came_late_is_reordered_and_not_lost() -> None:
    assert found(heard("a", [1, 3, 2], 3)) == {"reordered": 1}


def test_more_than_the_log_holds_is_doubled() -> None:
    assert found(heard("a", [1, 2, 3], 2)) == {"doubled": 1}


def test_other_bytes_under_the_same_seq_are_a_lost_event() -> None:
    assert found(same_bytes("a", {1: b"x", 2: b"y"}, {1: b"x", 2: b"z"})) == {"lost": 1}
    assert same_bytes("a", {1: b"x"}, {1: b"x", 2: b"z"}).clean


def test_pages_are_compared_with_the_log() -> None:
    stored = {1: json.dumps({"seq": 1, "a": 1}).encode(), 2: json.dumps({"seq": 2}).encode()}
    assert same_events("pages", [{"a": 1, "seq": 1}, {"seq": 2}], stored).clean
    assert found(same_events("pages", [{"a": 2, "seq": 1}], stored)) == {"lost": 2}


# -- turns


def test_seq_time_ids_and_pids_may_differ() -> None:
    assert verdict(turns("a", "b", first=40), turns("a", "b")) == {}


def test_a_missing_event_of_the_cli_is_lost_and_one_more_is_doubled() -> None:
    assert verdict(turns("a"), turns("a", "b", "b")) == {"lost": 2}
    assert verdict(turns("a", "b", "b"), turns("a", "b")) == {"doubled": 1}


def test_the_same_events_in_another_order_are_reordered() -> None:
    assert verdict(turns("b", "a"), turns("a", "b")) == {"reordered": 1}


def test_a_changed_event_is_one_lost_and_one_put_in_its_place() -> None:
    assert verdict(turns("a", "x"), turns("a", "b")) == {"lost": 1, "doubled": 1}


def test_stderr_may_come_between_any_two_events_of_stdout() -> None:
    err = event(0, "stderr", "backend", text="e")
    early, late = [err, *log("a")], [*log("a"), err]
    assert verdict(turns_of(early, {}), turns_of(late, {})) == {}


def test_a_wrong_exit_code_or_outcome_is_a_wrong_exit() -> None:
    assert verdict(turns("a", code=1), turns("a")) == {"wrong_exits": 1}
    assert verdict(turns("a", outcome="failed"), turns("a")) == {"wrong_exits": 2}  # the script's, and the model's
    assert verdict(turns("a", code=7), turns("a", code=7), Script("", exit=Exit(7))) == {}


def test_a_turn_ends_once_and_its_process_starts_once() -> None:
    twice = [*log("a"), event(9, "turn_completed", outcome="completed")]
    assert verdict(turns_of(twice, {}), turns("a")) == {"doubled": 1, "wrong_exits": 1}
    never = [each for each in log("a") if each["type"] != "process_started"]
    assert verdict(turns_of(never, {}), turns("a")) == {"lost": 1}


def test_a_turn_that_is_not_there_is_lost_and_one_that_nobody_asked_for_is_doubled() -> None:
    second = turns_of([{**each, "turn_id": "t2"} for each in log("a")], {})
    assert verdict(turns("a"), turns("a") + second, SCRIPT, SCRIPT)["lost"] == 1
    assert verdict(turns("a") + second, turns("a"), SCRIPT)["doubled"] == 1


def test_a_session_that_stopped_early_is_compared_with_as_much_of_the_model() -> None:
    second = turns_of([{**each, "turn_id": "t2"} for each in log("b")], {})
    assert verdict(turns("a"), turns("a") + second, SCRIPT) == {}


# -- live processes


LIVE = Script("", exit=None)


def live(*exits: int, failed: bool = False) -> list[Turn]:
    """Two turns in one process, which ends after the second; more exits than one are too many."""
    outcome = "failed" if failed else "completed"
    events = [
        event(1, "turn_started"),
        event(2, "process_started"),
        event(3, "turn_completed", outcome="completed"),
        event(4, "task", "backend", turn="", text="at rest"),
        event(5, "turn_started", turn="t2"),
        event(6, "approval_resolved", turn="t2", decision="allow"),
        event(7, "turn_completed", turn="t2", outcome=outcome),
        *(event(8, "process_exited", turn="", exit_code=code) for code in exits),
    ]
    return turns_of(events, {})


def test_a_live_process_ends_once_after_its_last_turn_and_with_the_code_of_that() -> None:
    assert verdict(live(0), live(0), LIVE, LIVE) == {}
    assert verdict(live(1, failed=True), live(1, failed=True), LIVE, Script("", exit=None, outcome="failed")) == {}
    assert verdict(live(1), live(1), LIVE, LIVE) == {"wrong_exits": 1}
    assert verdict(live(0, 0), live(0), LIVE, LIVE)["wrong_exits"] == 1
    assert verdict(live(), live(0), LIVE, LIVE)["wrong_exits"] == 1


def test_a_live_process_that_is_gone_too_early_is_a_wrong_exit() -> None:
    early = live(0)
    early[0].rest_life, early[1].rest_life = early[1].rest_life, []
    assert verdict(early, live(0), LIVE, LIVE)["wrong_exits"] == 2  # after the first turn, and not after the second
    killed = Script("", exit=Exit(code=0))
    assert verdict(early, early, killed, Script("", exit=Exit(signal=9))) == {"wrong_exits": 1}


def test_what_a_live_process_says_between_two_turns_counts() -> None:
    silent = live(0)
    silent[0].rest_out = []
    assert verdict(silent, live(0), LIVE, LIVE) == {"lost": 1}
    assert verdict(live(0), silent, LIVE, LIVE) == {"doubled": 1}


def test_another_decision_on_a_tool_call_is_seen() -> None:
    denied = live(0)
    denied[1].life = [{**each, "decision": "deny"} if "decision" in each else each for each in denied[1].life]
    assert verdict(denied, live(0), LIVE, LIVE) == {"lost": 1, "doubled": 1}


def test_a_prompt_that_was_steered_into_another_turn_has_none_of_its_own() -> None:
    merged = Script("", exit=None, together=True, steer="merged")
    assert verdict(live(0), live(0), LIVE, merged, LIVE) == {}
    assert verdict(live(0), live(0), LIVE, merged, merged)["doubled"] == 1


def test_the_contents_of_a_blob_count_and_its_name_does_not() -> None:
    def with_blob(name: str, contents: str) -> list[Turn]:
        said = event(2, "message", "backend", blocks=[{"kind": "text", "text": "head", "blob": name}])
        return turns_of([*log("a"), said], {name: contents})

    assert verdict(with_blob("blob-1", "all"), with_blob("blob-2", "all")) == {}
    assert verdict(with_blob("blob-1", "half"), with_blob("blob-2", "all")) == {"lost": 1, "doubled": 1}


def test_a_prompt_that_ran_twice_or_never_is_seen() -> None:
    assert witnessed("here", {0: "0\n", 1: "1\n"}, 2).clean
    assert found(witnessed("here", {0: "0\n0\n"}, 2)) == {"lost": 1, "doubled": 1}

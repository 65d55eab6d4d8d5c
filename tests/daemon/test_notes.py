"""`session/note`: a client's own words in the journal, in order, durable, and never taken for the daemon's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness

from clisup.errors import ClisupError


def test_a_note_stands_in_the_journal_with_its_data_and_whose_it_is(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    seq = session.call("note", code="client.stage", message="reflecting", data={"iteration": 2, "notes": ["a"]})["seq"]
    session.ask("again")
    found = session.events("notice", code="client.stage")
    assert [(e["seq"], e["message"], e["data"], e["turn_id"]) for e in found] == [
        (seq, "reflecting", {"iteration": 2, "notes": ["a"]}, None)
    ]
    assert found[0]["actor"]["pid"] > 0
    ends = [event["seq"] for event in session.events("turn_completed")]
    assert ends[0] < seq < ends[1]


def test_a_note_is_told_to_followers_also_in_the_middle_of_a_turn(daemon: Harness) -> None:
    session = daemon.new()
    turn = session.prompt("@stall")
    session.await_event("session_init")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id)
        session.call("note", code="client.stage", message="waiting")
        session.call("interrupt")
        events = wire.events_until("turn_completed")
    assert "client.stage" in [event.get("code") for event in events]
    assert session.end_of(turn)["outcome"] == "interrupted"


def test_a_note_survives_a_kill_of_the_daemon(daemon: Harness) -> None:
    session = daemon.new()
    seq = session.call("note", code="client.stage", message="before")["seq"]
    daemon.restart()
    assert session.events("notice", code="client.stage")[0]["seq"] == seq
    assert session.call("note", code="client.stage", message="after")["seq"] > seq


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": "closed"},  # which is the daemon's own word for the end of a session
        {"code": "client."},
        {"code": "client.Upper"},
        {"code": "client." + "x" * 65},
        {"code": "client.a\n"},
        {"message": "x" * 4097},
        {"message": "ä" * 2049},
        {"data": {"text": "x" * 65536}},
        {"data": [1, 2]},
    ],
)
def test_a_note_that_is_no_clients_or_too_large_is_refused(daemon: Harness, wrong: dict[str, Any]) -> None:
    session = daemon.new()
    with pytest.raises(ClisupError) as refused:
        session.call("note", **{"code": "client.stage", "message": "m", **wrong})
    assert refused.value.kind == "invalid_params"
    assert session.events("notice") == []


def test_data_that_is_nested_too_deeply_is_cut_and_says_so(daemon: Harness) -> None:
    deep: Any = "leaf"
    for _ in range(150):
        deep = [deep]
    session = daemon.new()
    session.call("note", code="client.deep", message="m", data={"deep": deep})
    assert "nested too deeply" in str(session.events("notice", code="client.deep")[0]["data"])
    assert session.ask("go on")["outcome"] == "completed"


def test_a_closed_session_takes_no_note(daemon: Harness) -> None:
    session = daemon.new()
    session.call("close")
    with pytest.raises(ClisupError) as refused:
        session.call("note", code="client.stage", message="m")
    assert refused.value.kind == "session_closed"


def test_the_daemons_log_holds_nothing_of_a_note(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"log_level": "debug"})
    session = daemon.new()
    session.call("note", code="client.secretcode", message="secretmessage", data={"secretkey": "secretvalue"})
    session.call("close")
    text = daemon.log.read_text()
    assert '"notice"' in text and "secret" not in text

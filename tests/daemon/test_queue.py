"""Several prompts for one session, one prompt sent twice, and more sessions than may run at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

from clisup.errors import ClisupError


def test_prompts_run_one_after_the_other_in_order(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    first = session.call("prompt", prompt=f"@wait-file {tmp_path}/go")
    session.cli()  # until it has started, it stands in the queue itself
    queued = [session.call("prompt", prompt=f"number {n}") for n in (1, 2)]
    assert first["delivery"] == "delivered" and first.get("position") is None
    assert [(q["delivery"], q["position"]) for q in queued] == [("queued", 1), ("queued", 2)]
    assert [row["turn_id"] for row in session.get()["queue"]] == [q["turn_id"] for q in queued]
    (tmp_path / "go").touch()
    session.end_of(queued[1]["turn_id"])
    turns = [(e["type"], e["turn_id"]) for e in session.events() if e["type"] in ("turn_started", "turn_completed")]
    assert turns == [(type_, f"t{n}") for n in (1, 2, 3) for type_ in ("turn_started", "turn_completed")]


def test_refuse_and_steer_say_why_not(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go")
    session.prompt("second")
    with pytest.raises(ClisupError) as refused:
        session.prompt("third", when_busy="refuse")
    assert refused.value.kind == "session_busy" and refused.value.data["queue_position"] == 2
    with pytest.raises(ClisupError) as unsupported:
        session.prompt("third", when_busy="steer")
    assert unsupported.value.kind == "unsupported"
    (tmp_path / "go").touch()
    session.end_of("t2")
    assert session.ask("idle again", when_busy="refuse")["outcome"] == "completed"


def test_the_queue_is_limited(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_queue": 2})
    session = daemon.new()
    for text in (f"@wait-file {tmp_path}/go", "one", "two"):
        session.prompt(text)
    with pytest.raises(ClisupError) as refused:
        session.prompt("three")
    assert refused.value.kind == "limit_exceeded" and refused.value.data["value"] == 2
    (tmp_path / "go").touch()


def test_the_same_key_prompts_once_however_often_it_is_sent(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    original = session.call("prompt", prompt=f"@wait-file {tmp_path}/go\nonce", key="k")
    assert session.call("prompt", prompt="whatever", key="k") == {**original, "delivery": "duplicate"}
    with daemon.wire() as wire:
        wait = wire.post("session/prompt", session_id=session.id, prompt="again", key="k", wait=True)
        (tmp_path / "go").touch()
        assert wire.answer(wait)["text"] == "once"
    assert session.ask("after the end", key="k")["text"] == "once"
    daemon.restart()
    assert session.call("prompt", prompt="after a restart", key="k")["delivery"] == "duplicate"
    assert session.ask("after a restart", key="k") == {**session.ask("x", key="k"), "text": "once", "turn_id": "t1"}
    assert session.types().count("turn_completed") == session.types().count("prompt_accepted") == 1


@pytest.mark.fault(1)
def test_queue_and_running_turn_survive_a_kill(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\nfirst")
    session.cli()
    session.prompt("second", key="two")
    session.prompt("third\n@count")
    daemon.restart()
    assert [row["key"] for row in session.get()["queue"]] == ["two", None]
    (tmp_path / "go").touch()
    assert "3" in session.end_of("t3")["text"]
    assert [e["outcome"] for e in session.events("turn_completed")] == ["completed"] * 3


def test_turns_beyond_the_cap_wait_visibly_and_in_order(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_running": 1})
    first, second, third = (daemon.new() for _ in range(3))
    first.prompt(f"@wait-file {tmp_path}/one")
    first.cli()
    second.prompt(f"@wait-file {tmp_path}/two")
    until(lambda: second.get()["state"] == "waiting")
    third.prompt("last")
    until(lambda: third.get()["state"] == "waiting")
    status = daemon.call("daemon/status")["daemon"]
    assert (status["running"], status["max_running"], status["waiting"]) == (1, 1, 2)
    second.prompt("surplus")
    second.call("interrupt", turn_id="t2")  # gives up nothing of the place of t1
    (tmp_path / "one").touch()
    second.cli()
    assert third.get()["state"] == "waiting"
    (tmp_path / "two").touch()
    assert third.end_of("t1")["outcome"] == "completed"
    until(lambda: daemon.call("daemon/status")["daemon"]["running"] == 0)


def test_a_closed_session_takes_no_prompt_and_its_queue_is_told(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new(env=None)
    session.prompt(f"@wait-file {tmp_path}/never")
    session.prompt("queued")
    session.call("close")
    assert [e["outcome"] for e in session.events("turn_completed")] == ["interrupted"] * 2
    for _ in range(2):
        with pytest.raises(ClisupError) as closed:
            session.prompt("more")
        assert closed.value.kind == "session_closed"
    assert session.call("close")["ok"]
    assert not session.processes() and not (session.dir / "prompts").exists()


def test_a_prompt_that_races_with_a_close_is_refused_or_ended(daemon: Harness) -> None:
    for _ in range(8):
        session = daemon.new()
        with daemon.wire() as one, daemon.wire() as other:
            prompt = one.post("session/prompt", session_id=session.id, prompt="hello", wait=True)
            close = other.post("session/close", session_id=session.id)
            assert other.answer(close)["ok"]
            try:
                assert one.answer(prompt)["outcome"] in ("interrupted", "completed")
            except ClisupError as error:
                assert error.kind == "session_closed"
        accepted, ended = (session.types().count(name) for name in ("prompt_accepted", "turn_completed"))
        assert accepted == ended

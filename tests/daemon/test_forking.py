"""`session/fork`: another session with the same history, and a source that nobody has touched."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.errors import ClisupError


def fork(source: SessionProbe, **params: Any) -> SessionProbe:
    result = source.call("fork", **params)
    return SessionProbe(source.daemon, result["session_id"])


def transcript(session: SessionProbe) -> Path:
    found = list((session.daemon.root / "home").glob(f".local/state/clisup-demo/projects/*/{session.id}.jsonl"))
    assert len(found) == 1
    return found[0]


def prompts(session: SessionProbe) -> list[str]:
    """What the CLI's own transcript holds of prompts."""
    entries = [json.loads(line) for line in transcript(session).read_bytes().splitlines()]
    assert {entry["sessionId"] for entry in entries} == {session.id}
    return [entry["message"]["content"] for entry in entries if entry["type"] == "user"]


def identity(path: Path) -> tuple[bytes, int, int]:
    found = path.stat()
    return path.read_bytes(), found.st_mtime_ns, found.st_ino


def talked(daemon: Harness, *texts: str, **params: Any) -> SessionProbe:
    session = daemon.new(**params)
    for text in texts:
        session.ask(text)
    return session


def refused(kind: str, call: Callable[[], Any]) -> ClisupError:
    with pytest.raises(ClisupError) as caught:
        call()
    assert caught.value.kind == kind
    return caught.value


# -- the history ------------------------------------------------------------------------------------------------------


def test_a_whole_fork_has_the_whole_history_and_goes_on_from_there(daemon: Harness) -> None:
    source = talked(daemon, "first words", "@count")
    forked = fork(source)
    assert forked.id != source.id
    assert prompts(forked) == ["first words", "@count"]
    assert forked.ask("@count")["text"] == "turn 3"
    assert forked.ask("@recall")["text"] == source.ask("@recall")["text"]
    assert source.ask("@count")["text"] == "turn 4"


def test_a_fork_at_a_turn_ends_with_that_turn(daemon: Harness) -> None:
    source = talked(daemon, "one", "two", "three")
    assert prompts(fork(source, at_turn="t1")) == ["one"]
    assert prompts(fork(source, at_turn="t2")) == ["one", "two"]
    assert prompts(fork(source, at_turn="t3")) == ["one", "two", "three"]


def test_the_same_prompt_many_times_is_cut_at_the_right_one(daemon: Harness) -> None:
    forked = fork(talked(daemon, *["again"] * 5), at_turn="t3")
    assert len(prompts(forked)) == 3
    assert forked.ask("@count")["text"] == "turn 4"


def test_a_fork_of_a_fork_is_cut_at_its_own_turns(daemon: Harness) -> None:
    first = fork(talked(daemon, "one", "two"), at_turn="t1")
    first.ask("other two")
    first.ask("other three")
    assert prompts(fork(first, at_turn="t1")) == ["one", "other two"]


@pytest.mark.parametrize("trouble", ["@die KILL", "@exit 3", "@error overloaded", "@crash"])
def test_a_turn_that_failed_is_a_place_to_fork_at_as_others_are(daemon: Harness, trouble: str) -> None:
    source = talked(daemon, "one", f"some words\n{trouble}", "three")
    assert prompts(fork(source, at_turn="t1")) == ["one"]
    assert prompts(fork(source, at_turn="t2")) == ["one", f"some words\n{trouble}"]
    assert len(prompts(fork(source, at_turn="t3"))) == 3


def test_a_turn_that_was_interrupted_and_one_with_a_tool_are_whole_in_the_fork(daemon: Harness) -> None:
    source = talked(daemon, "@bash echo in a tool\ndone")
    turn = source.prompt("words before\n@stall")
    source.await_event("content_delta", turn_id=turn)
    source.call("interrupt")
    source.ask("three")
    assert len(prompts(fork(source, at_turn="t1"))) == 1
    assert len(prompts(fork(source, at_turn="t2"))) == 2


def test_background_work_and_its_report_belong_to_the_fork_at_the_turn_that_began_it(daemon: Harness) -> None:
    source = talked(daemon, "@background 0.1 It has ended.\nstarted")
    source.ask("three")
    forked = fork(source, at_turn="t1")
    assert prompts(forked)[0].startswith("@background")
    assert "three" not in prompts(forked)


def test_while_a_turn_runs_a_whole_fork_takes_what_has_completed(daemon: Harness) -> None:
    source = talked(daemon, "one")
    turn = source.prompt("two\n@stall")
    source.await_event("content_delta", turn_id=turn)
    queued = source.prompt("three")
    forked = fork(source)
    assert prompts(forked) == ["one"]
    assert forked.events("session_forked")[0]["at_turn"] == "t1"
    for unfinished in (turn, queued):
        error = refused("session_busy", lambda at=unfinished: fork(source, at_turn=at))
        assert unfinished in error.message
    assert forked.ask("@count")["text"] == "turn 2"
    source.call("interrupt", turn_id=turn)
    source.end_of(queued)


def test_a_session_whose_first_turn_runs_has_nothing_to_fork_yet(daemon: Harness) -> None:
    source = daemon.new()
    refused("turn_not_found", lambda: fork(source))
    turn = source.prompt("words\n@stall")
    source.await_event("content_delta", turn_id=turn)
    refused("session_busy", lambda: fork(source))
    source.call("interrupt")


def test_history_from_before_clisup_is_forked_whole(daemon: Harness) -> None:
    old = talked(daemon, "one", "two")
    old.call("close")
    taken_over = daemon.new(resume_native_id=old.id)
    forked = fork(taken_over)
    assert prompts(forked) == ["one", "two"]
    assert "at_turn" not in forked.events("session_forked")[0]


def test_a_fork_at_a_turn_that_never_ran_is_refused(daemon: Harness) -> None:
    source = talked(daemon, "one")
    refused("turn_not_found", lambda: fork(source, at_turn="t7"))


# -- live sessions ----------------------------------------------------------------------------------------------------


def test_turns_of_one_live_process_are_told_apart(daemon: Harness) -> None:
    source = talked(daemon, "one", "again", "again", "four", mode="live")
    assert len(source.events("process_started")) == 1
    before = identity(transcript(source))
    assert prompts(fork(source, at_turn="t1")) == ["one"]
    assert prompts(fork(source, at_turn="t3")) == ["one", "again", "again"]
    forked = fork(source, at_turn="t2")
    assert forked.ask("@count")["text"] == "turn 3"
    forked.ask("once more")
    assert len(forked.events("process_started")) == 1, "it is live, as its source is"
    assert prompts(fork(source)) == ["one", "again", "again", "four"]
    assert identity(transcript(source)) == before
    assert source.ask("@count")["text"] == "turn 5"
    assert len(source.events("process_started")) == 1, "its own process is no stranger"
    assert not source.events("notice", code="foreign_writes")


# -- the source -------------------------------------------------------------------------------------------------------


def test_the_sources_transcript_is_not_touched(daemon: Harness) -> None:
    source = talked(daemon, "one", "two")
    before = identity(transcript(source))
    fork(source)
    forked = fork(source, at_turn="t1")
    assert identity(transcript(source)) == before
    forked.ask("something else")
    assert identity(transcript(source)) == before
    assert transcript(forked).parent == transcript(source).parent
    assert transcript(forked).stat().st_mode & 0o777 == 0o600


# -- what the new session is ------------------------------------------------------------------------------------------


def test_its_first_event_says_what_it_is_a_fork_of(daemon: Harness) -> None:
    source = talked(daemon, "one", "two")
    forked = fork(source, at_turn="t1")
    event = forked.events()[0]
    assert event["type"] == "session_forked" and event["source"] == "daemon"
    assert (event["source_session_id"], event["at_turn"], event["whole"]) == (source.id, "t1", False)
    assert (event["source_native_session_id"], event["native_session_id"]) == (source.id, forked.id)
    assert event["actor"]["uid"] == os.getuid()


def test_it_has_the_params_of_its_source_and_its_secrets_until_it_is_closed(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"request_env": ["TOKEN"]})
    params = {
        "labels": {"for": "tests"},
        "permission_mode": "acceptEdits",
        "model": "demo-2",
        "env": {"TOKEN": "hidden"},
    }
    source = talked(daemon, "one", system_prompt="Be brief.", **params)
    forked = fork(source)
    source.call("close")
    assert forked.ask("@env TOKEN")["text"] == "TOKEN: present"
    summary = forked.get()
    assert (summary["labels"], summary["model"]) == ({"for": "tests"}, "demo-2")
    argv = forked.events("process_started")[0]["argv"]
    assert f"--resume={forked.id}" in argv and "acceptEdits" in argv and "--append-system-prompt-file" in argv
    assert (forked.dir / "private" / "system_prompt.txt").read_text() == "Be brief."
    assert "hidden" not in (forked.dir / "session.json").read_text()


def test_cost_and_usage_begin_at_zero_and_nothing_is_charged_twice(daemon: Harness) -> None:
    source = talked(daemon, "@cost 2.5\none", "@cost 1.5\ntwo")
    forked = fork(source)
    assert forked.get()["cost_usd"] is None
    assert forked.ask("@cost 0.25\nthree")["cost_usd"] == pytest.approx(0.25)
    assert forked.ask("@cost 0.5\nfour")["cost_usd"] == pytest.approx(0.5)
    assert forked.get()["cost_usd"] == pytest.approx(0.75)
    assert source.ask("@cost 1\nthree")["cost_usd"] == pytest.approx(1)


def test_asking_twice_with_the_same_id_gives_the_same_session(daemon: Harness) -> None:
    source = talked(daemon, "one", "two")
    wanted = str(uuid.uuid4())
    first = fork(source, session_id_new=wanted, at_turn="t1")
    first.ask("other two")
    source.ask("three")
    again = fork(source, session_id_new=wanted, at_turn="t1")
    assert first.id == again.id == wanted and len(again.events("session_forked")) == 1
    refused("session_exists", lambda: fork(source, session_id_new=wanted))
    refused("session_exists", lambda: fork(source, session_id_new=source.id))


def test_many_that_ask_at_once_for_one_id_get_one_session(daemon: Harness) -> None:
    source, wanted = talked(daemon, "one"), str(uuid.uuid4())
    wires = [daemon.wire() for _ in range(5)]
    asked = [w.post("session/fork", session_id=source.id, session_id_new=wanted) for w in wires]
    assert {w.answer(id_)["session_id"] for w, id_ in zip(wires, asked, strict=True)} == {wanted}
    for wire in wires:
        wire.close()


def test_a_transcript_of_the_new_id_is_never_written_over(daemon: Harness) -> None:
    source, wanted = talked(daemon, "one"), str(uuid.uuid4())
    precious = transcript(source).with_name(f"{wanted}.jsonl")
    precious.write_text("somebody's own\n")
    refused("session_exists", lambda: fork(source, session_id_new=wanted))
    assert precious.read_text() == "somebody's own\n"
    assert not (daemon.state / "sessions" / wanted).exists()


def test_a_closed_session_and_a_backend_without_forks_are_refused(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[backends.other]\nkind = "acp"\ncommand = ["true"]')
    source = talked(daemon, "one")
    source.call("close")
    refused("session_closed", lambda: fork(source))
    refused("unsupported", lambda: fork(daemon.new(backend="other")))
    can = {row["name"]: row["capabilities"]["fork"] for row in daemon.call("backend/list")}
    assert can["demo"] and not can["other"]


# -- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("point", "there"),
    [("fork.begun", False), ("fork.copied", False), ("fork.published", False), ("fork.created", True)],
)
def test_a_daemon_killed_in_a_fork_leaves_all_of_it_or_nothing(
    serve: Callable[..., Harness], point: str, there: bool
) -> None:
    daemon = serve()
    source, wanted = talked(daemon, "one", "two"), str(uuid.uuid4())
    before, folder = identity(transcript(source)), transcript(source).parent
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.start()
    with daemon.wire() as wire:
        wire.post("session/fork", session_id=source.id, session_id_new=wanted, at_turn="t1")
        assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    daemon.kill()
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    assert identity(transcript(source)) == before
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{source.id}.jsonl"} | ({f"{wanted}.jsonl"} if there else set())
    assert (daemon.state / "sessions" / wanted).exists() == there
    forked = fork(source, session_id_new=wanted, at_turn="t1")  # its client asks again
    assert prompts(forked) == ["one"] and len(forked.events("session_forked")) == 1
    assert forked.events()[0]["type"] == "session_forked"
    assert forked.ask("@count")["text"] == "turn 2"
    assert {path.name for path in folder.iterdir()} == {f"{source.id}.jsonl", f"{wanted}.jsonl"}
    assert not (forked.dir / "fork.json").exists()


def test_a_disk_that_refuses_leaves_nothing_and_the_next_try_works(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    source, wanted = talked(daemon, "one"), str(uuid.uuid4())
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = "fork.copied=ENOSPC,fork.published=EIO"
    daemon.start()
    for _ in ("copied", "published"):
        refused("storage_failed", lambda: fork(source, session_id_new=wanted))
        assert [path.name for path in transcript(source).parent.iterdir()] == [f"{source.id}.jsonl"]
        assert not (daemon.state / "sessions" / wanted).exists()
    assert prompts(fork(source, session_id_new=wanted)) == ["one"]

"""`history` of session/new: a session that goes on from messages of the client's own."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
TALK = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": [{"type": "text", "text": "Hello, Ada."}]},
]
LONG = [
    *TALK,
    {"role": "user", "content": [{"type": "image", "media_type": "image/png", "data": PNG}, {"type": "text", "text": "Look."}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "no proof of it"},
        {"type": "text", "text": "I look.", "cache": True},
        {"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "port"}},
    ]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "port = 80", "is_error": True}]},
    {"role": "assistant", "content": [{"type": "text", "text": "At 80."}]},
]  # fmt: skip
AS_SENT = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": [{"type": "text", "text": "Hello, Ada."}]},
    {"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "text", "text": "Look."},
    ]},
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "port"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "port = 80", "is_error": True},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "At 80."}]},
]  # fmt: skip


def projects(daemon: Harness) -> Path:
    return daemon.root / "home" / ".local/state/clisup-demo/projects"


def transcript(session: SessionProbe) -> Path:
    (path,) = projects(session.daemon).glob(f"*/{session.id}.jsonl")
    return path


def known_to_the_cli(session: SessionProbe) -> list[Any]:
    """The messages that the CLI has of the time before its turn."""
    return [json.loads(line) for line in session.ask("@history")["text"].splitlines()]


def refused(kind: str, call: Callable[[], Any]) -> ClisupError:
    with pytest.raises(ClisupError) as caught:
        call()
    assert caught.value.kind == kind
    return caught.value


# -- the history ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_the_cli_goes_on_from_these_messages_and_no_others(daemon: Harness, mode: str) -> None:
    session = daemon.new(history=LONG, mode=mode)
    assert known_to_the_cli(session) == AS_SENT
    assert session.ask("@recall")["text"] == "The first prompt was: My name is Ada."
    assert session.ask("@count")["text"] == "turn 5"  # two of the history, and this one is the third here
    assert f"--resume={session.id}" in session.events("process_started")[0]["argv"]


def test_the_journal_begins_with_the_seed_and_the_session_is_known_by_its_native_id(daemon: Harness) -> None:
    opened = daemon.call("session/new", backend="demo", cwd=str(daemon.cwd), history=TALK)
    session = SessionProbe(daemon, opened["session_id"])
    (first,) = session.events()
    assert (first["type"], first["messages"], first["native_session_id"]) == ("session_seeded", 2, session.id)
    assert first["source"] == "daemon" and first["actor"]["uid"] == os.getuid()
    assert opened["native_session_id"] == session.id


def test_its_file_is_readable_by_its_owner_alone_and_the_record_holds_none_of_its_words(daemon: Harness) -> None:
    session = daemon.new(history=TALK)
    assert transcript(session).stat().st_mode & 0o777 == 0o600
    assert not [path for path in session.dir.rglob("*") if path.is_file() and b"Ada" in path.read_bytes()]
    assert not list(projects(daemon).glob("*/*.clisup-fork"))


def test_an_empty_history_is_none(daemon: Harness) -> None:
    session = daemon.new(history=[])
    assert session.ask("@history")["text"] == "nothing"
    assert not session.events("session_seeded")


def test_cost_and_usage_begin_at_zero(daemon: Harness) -> None:
    session = daemon.new(history=TALK)
    assert session.get()["cost_usd"] is None
    assert session.ask("@cost 0.25\none")["cost_usd"] == pytest.approx(0.25)
    assert session.ask("@cost 0.5\ntwo")["cost_usd"] == pytest.approx(0.5)


def test_a_restart_of_the_daemon_changes_nothing(daemon: Harness) -> None:
    session = daemon.new(history=TALK)
    daemon.kill()
    daemon.start()
    assert known_to_the_cli(session) == AS_SENT[:2]
    assert len(session.events("session_seeded")) == 1


def test_it_is_forked_with_its_history_and_at_its_turns(daemon: Harness) -> None:
    session = daemon.new(history=TALK)
    early = SessionProbe(daemon, session.call("fork")["session_id"])  # before a turn of its own
    session.ask("one")
    session.ask("two")
    cut = SessionProbe(daemon, session.call("fork", at_turn="t1")["session_id"])
    assert known_to_the_cli(early) == AS_SENT[:2]
    words = [said["content"] for said in known_to_the_cli(cut) if said["role"] == "user"]
    assert words == ["My name is Ada.", "one"]
    assert cut.events("session_forked") and not cut.events("session_seeded")


def test_other_transcripts_stay_as_they_are(daemon: Harness) -> None:
    old = daemon.new()
    old.ask("old words")
    before = (transcript(old).read_bytes(), transcript(old).stat().st_mtime_ns, transcript(old).stat().st_ino)
    new = daemon.new(history=TALK)
    new.ask("new words")
    assert (transcript(old).read_bytes(), transcript(old).stat().st_mtime_ns, transcript(old).stat().st_ino) == before
    assert new.id != old.id and b"old words" not in transcript(new).read_bytes()


def test_a_directory_behind_a_link_is_the_clis_own_place(daemon: Harness) -> None:
    link = daemon.root / "link"
    link.symlink_to(daemon.cwd)
    session = daemon.new(history=TALK, cwd=str(link))
    plain = daemon.new(cwd=str(link))
    plain.ask("one")
    assert transcript(session).parent == transcript(plain).parent


# -- get or create ----------------------------------------------------------------------------------------------------


def test_asking_twice_with_the_same_id_gives_the_same_session(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    first = daemon.new(session_id=wanted, history=TALK)
    first.ask("one")
    size = transcript(first).stat().st_size
    assert daemon.new(session_id=wanted, history=TALK).id == first.id
    assert transcript(first).stat().st_size == size
    refused("session_exists", lambda: daemon.new(session_id=wanted, history=LONG))
    refused("session_exists", lambda: daemon.new(session_id=wanted))


def test_many_that_ask_at_once_for_one_id_get_one_session(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    wires = [daemon.wire() for _ in range(5)]
    params = {"backend": "demo", "cwd": str(daemon.cwd), "session_id": wanted, "history": TALK}
    asked = [w.post("session/new", **params) for w in wires]
    assert {w.answer(id_)["session_id"] for w, id_ in zip(wires, asked, strict=True)} == {wanted}
    for wire in wires:
        wire.close()
    assert len(SessionProbe(daemon, wanted).events("session_seeded")) == 1


def test_a_transcript_of_the_id_is_never_written_over(daemon: Harness) -> None:
    other = daemon.new()
    other.ask("one")
    wanted = str(uuid.uuid4())
    precious = transcript(other).with_name(f"{wanted}.jsonl")
    precious.write_text("somebody's own\n")
    refused("session_exists", lambda: daemon.new(session_id=wanted, history=TALK))
    assert precious.read_text() == "somebody's own\n"
    assert not (daemon.state / "sessions" / wanted).exists()


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_what_no_model_could_have_been_told_is_refused_and_leaves_nothing(daemon: Harness) -> None:
    wanted = str(uuid.uuid4())
    error = refused("invalid_params", lambda: daemon.new(session_id=wanted, history=LONG[:4]))
    assert "toolu_1" in error.message and error.data["param"] == "history"
    assert not (daemon.state / "sessions" / wanted).exists()
    assert not list(projects(daemon).glob(f"*/{wanted}*"))


def test_a_history_and_a_native_session_do_not_go_together(daemon: Harness) -> None:
    refused("invalid_params", lambda: daemon.new(history=TALK, resume_native_id=str(uuid.uuid4())))


def test_an_image_over_the_limit_is_refused(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_image_bytes": 20})
    error = refused("invalid_params", lambda: daemon.new(history=LONG))
    assert error.data["limit"] == "max_image_bytes"


def test_a_backend_without_histories_refuses_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(raw='[backends.other]\nkind = "acp"\ncommand = ["true"]')
    refused("unsupported", lambda: daemon.new(backend="other", history=TALK))
    can = {row["name"]: row["capabilities"]["history"] for row in daemon.call("backend/list")}
    assert can["demo"] and not can["other"]


# -- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("point", "there"),
    [("fork.begun", False), ("fork.copied", False), ("fork.published", False), ("fork.created", True)],
)
def test_a_daemon_killed_while_it_is_made_leaves_all_of_it_or_nothing(
    serve: Callable[..., Harness], point: str, there: bool
) -> None:
    daemon = serve()
    wanted = str(uuid.uuid4())
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.start()
    with daemon.wire() as wire:
        wire.post("session/new", backend="demo", cwd=str(daemon.cwd), session_id=wanted, history=LONG)
        assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    daemon.kill()
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    names = [path.name for path in projects(daemon).rglob("*")]
    assert [name for name in names if wanted in name] == ([f"{wanted}.jsonl"] if there else [])
    assert there or not names  # nor the folder that was made for it
    assert (daemon.state / "sessions" / wanted).exists() == there
    session = daemon.new(session_id=wanted, history=LONG)  # its client asks again
    assert [e["type"] for e in session.events()] == ["session_seeded"]
    assert known_to_the_cli(session) == AS_SENT
    assert not (session.dir / "fork.json").exists()


def test_a_disk_that_refuses_leaves_nothing_and_the_next_try_works(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    wanted = str(uuid.uuid4())
    daemon.kill()
    daemon.env["CLISUP_FAILPOINTS"] = "fork.copied=ENOSPC,fork.published=EIO"
    daemon.start()
    for _ in range(2):
        refused("storage_failed", lambda: daemon.new(session_id=wanted, history=TALK))
        assert not list(projects(daemon).glob("*")) and not (daemon.state / "sessions" / wanted).exists()
    assert known_to_the_cli(daemon.new(session_id=wanted, history=TALK)) == AS_SENT[:2]


def test_a_long_history_that_is_written_holds_up_no_other_session(daemon: Harness) -> None:
    """Asked for first, it takes as long as a hundred of the others; asked for twice meanwhile, it is made once."""
    wanted, text = str(uuid.uuid4()), "x" * 1000
    long = [{"role": role, "content": text} for _ in range(5000) for role in ("user", "assistant")]
    with daemon.wire() as slow, daemon.wire() as again, daemon.wire() as quick:
        for wire in (slow, again):
            wire.post("session/new", backend="demo", cwd=str(daemon.cwd), session_id=wanted, history=long)
        until(lambda: (daemon.state / "sessions" / wanted).exists())  # it is being written
        quick.call("session/new", backend="demo", cwd=str(daemon.cwd))
        assert not select.select([slow.socket], [], [], 0)[0]
        assert [wire.frame()["result"]["session_id"] for wire in (slow, again)] == [wanted] * 2

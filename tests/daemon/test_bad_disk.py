"""A disk that fails at one place, for a while: typed refusals or waiting turns, nothing lost or doubled, no restart needed."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError
from clisup.host.failpoints import VARIABLE
from clisup.store.journal_store import JournalStore
from tests.journals import seqs_of

WORDS = {"ENOSPC": "full", "EDQUOT": "full", "EROFS": "read_only", "EIO": "failing"}
SCRIPT = "@stream 250 200\n@huge 3000\nbye"


def armed(serve: Callable[..., Harness], rules: str, **tables: Any) -> Harness:
    """A daemon with these failpoints, small segments and small events, and a client that asks again when it may."""
    small = {"daemon": {"segment_bytes": 65536} | tables.pop("daemon", {}), "limits": {"inline_bytes": 1024}}
    daemon = serve(env={VARIABLE: rules}, **small, **tables)
    daemon.call = patient(daemon.call)  # type: ignore[method-assign]
    return daemon


def patient(call: Callable[..., Any]) -> Callable[..., Any]:
    def again(method: str, /, **params: Any) -> Any:
        answers: list[Any] = []

        def tried() -> bool:
            try:
                answers.append(call(method, **params))
            except ClisupError as refused:
                if refused.kind != "storage_failed":
                    raise
                assert refused.hint and "cannot" in refused.message
                return False
            return True

        until(tried, f"{method} is refused for ever")
        return answers[0]

    return again


def ask_until_done(session: SessionProbe) -> tuple[dict[str, Any], int]:
    """The answer, and how many turns it took: one that the disk refused says so, and may be asked again."""
    for turns in range(1, 10):
        turn = session.prompt(SCRIPT)
        until(
            lambda: session.get()["state"] == "idle" and not session.get()["queue"]
        )  # cheaper than all events, each time
        end = session.end_of(turn)
        if end["outcome"] == "completed":
            return end, turns
        assert (end["outcome"], end["error"]["kind"], end["error"]["retryable"]) == ("failed", "storage_failed", True)
    raise AssertionError("every turn fails")


def stored(session: SessionProbe) -> list[int]:
    """What the next daemon would find in the journal."""
    store = JournalStore(str(session.dir / "journal"), segment_bytes=65536)
    list(store.load())
    reader, seqs = store.reader(0), []
    while piece := seqs_of(reader):
        assert reader.take_gap() is None
        seqs += piece
    reader.close()
    store.close()
    return seqs


def logged(daemon: Harness, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


CASES = [
    ("session", "file.write=ENOSPC@2-3"),
    ("session-renamed", "file.rename=EIO@2"),
    ("prompt", "file.write=EDQUOT@3-4"),
    ("intent", "file.write=EROFS@4"),
    ("intent-for-long", "file.write=EIO@4-6"),
    ("blob", "file.write=ENOSPC@5-7"),
    ("blob-renamed", "file.rename=EIO@5-7"),
    ("journal-first", "journal.before=EIO@1"),
    ("journal-second", "journal.before=ENOSPC@2-5"),
    ("journal-third", "journal.before=EROFS@3-6"),
    ("journal-later", "journal.before=EDQUOT@5-8"),
    ("journal-torn-first", "journal.torn=ENOSPC@1-2"),
    ("journal-torn", "journal.torn=EIO@4-6, journal.mend=EIO@1-3"),
    ("segment-first", "segment.before=ENOSPC@1-2"),
    ("segment-filled", "segment.before=EIO@2-4"),
    ("segment-torn", "segment.after=EROFS@2-3, segment.mend=EROFS@1-2"),
    ("sync-of-prompt", "sync.before=EIO@1-2"),
    ("sync-of-end", "sync.before=EIO@2"),
    ("spool", "spool.read=EIO@3-6"),
    ("journal-read", "journal.read=EIO@1-2"),
    ("small-file-read-at-opening", "file.read=EIO@4-8"),  # after the accounts and the secrets of the new session
    ("small-file-read", "file.read=EIO@5-9"),  # and after its MCP servers
]


@pytest.mark.fault(55)
@pytest.mark.parametrize("rules", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_a_disk_that_fails_for_a_while_costs_no_event_and_no_restart(serve: Callable[..., Harness], rules: str) -> None:
    daemon = armed(serve, rules)
    pid = daemon.pid
    session = daemon.new(session_id=str(uuid.uuid4()))
    end, turns = ask_until_done(session)
    assert session.chunks() == list(range(250)) and end["blob"]
    assert [e["turn_id"] for e in session.events("prompt_accepted")] == [
        e["turn_id"] for e in session.events("turn_completed")
    ]
    assert len(session.events("turn_completed")) == turns
    assert len(session.events("process_exited")) == len(session.events("process_started")) == 1
    until(lambda: daemon.call("daemon/status")["daemon"]["storage"]["state"] == "ok")
    assert daemon.pid == pid
    assert stored(session) == [event["seq"] for event in session.events()]
    words = {line["state"] for line in logged(daemon, "storage trouble")}
    if not rules.startswith("journal.read"):  # that one is the request's own trouble, and it was told
        assert words == {WORDS[name] for name in WORDS if f"={name}@" in rules}
    assert len(logged(daemon, "storage works again")) <= len(logged(daemon, "storage trouble"))


@pytest.mark.fault(56)
@pytest.mark.parametrize("name", ["ENOSPC", "EIO"])
def test_the_end_of_a_run_whose_keeper_was_killed_is_declared_when_the_disk_takes_it(
    serve: Callable[..., Harness], name: str
) -> None:
    daemon = armed(serve, f"file.write={name}@6-10")
    session = daemon.new(session_id=str(uuid.uuid4()))
    turn = session.prompt("@stall")
    os.kill(session.keeper(), 9)
    assert session.end_of(turn)["error"]["kind"] == "crashed"
    assert len(session.events("process_exited")) == 1 and session.ask("on")["outcome"] == "completed"
    assert daemon.call("daemon/status")["daemon"]["storage"]["failures"] >= 5


@pytest.mark.fault(55)
def test_a_turn_that_was_left_running_is_taken_up_on_a_bad_disk_and_goes_on(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = armed(serve, "")
    session = daemon.new(session_id=str(uuid.uuid4()))
    turn = session.prompt(f"@stream 5\n@wait-file {tmp_path}/go\n@stream 7")
    pid = session.cli()
    daemon.kill()
    daemon.env[VARIABLE] = "journal.before=ENOSPC@1-6, file.read=EIO@7-10"
    daemon.start()
    (tmp_path / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"
    assert session.chunks() == [*range(5), *range(7)] and [e["pid"] for e in session.events("process_started")] == [pid]


@pytest.mark.fault(55)
@pytest.mark.parametrize("name", list(WORDS))
def test_the_status_says_loudly_what_is_wrong_and_since_when(serve: Callable[..., Harness], name: str) -> None:
    daemon = armed(serve, f"journal.before={name}@2-8")
    fine = daemon.call("daemon/status")["daemon"]["storage"]
    assert (fine["state"], fine["error"], fine["failures"]) == ("ok", None, 0) and fine["free_bytes"] > 0
    session = daemon.new(session_id=str(uuid.uuid4()))
    turn = session.prompt("hello")
    bad = until(lambda: _storage_unless_ok(daemon))
    assert bad["state"] == WORDS[name] and bad["since"] > fine["since"] and "cannot append" in bad["error"]
    session.end_of(turn)
    until(lambda: _storage_unless_ok(daemon) is None)
    well = daemon.call("daemon/status")["daemon"]["storage"]
    assert (well["error"], well["failures"]) == (None, 7) and well["since"] > bad["since"]
    assert (
        1 <= len(logged(daemon, "storage works again")) == len(logged(daemon, "storage trouble")) < 7
    )  # not each time
    assert not (daemon.state / ".probe").exists()


def _storage_unless_ok(daemon: Harness) -> dict[str, Any] | None:
    storage = daemon.call("daemon/status")["daemon"]["storage"]
    return None if storage["state"] == "ok" else storage


@pytest.mark.fault(55)
def test_a_prompt_whose_sync_fails_is_answered_when_its_state_is_on_disk_and_the_journal_begins_anew(
    serve: Callable[..., Harness],
) -> None:
    daemon = armed(serve, "sync.before=EIO@1")
    session = daemon.new(session_id=str(uuid.uuid4()))
    assert session.ask("hello")["outcome"] == "completed"
    assert [e["code"] for e in session.events("notice")] == ["journal_renewed"]
    assert len(list((session.dir / "journal").iterdir())) == 2
    assert len(session.events("prompt_accepted")) == 1


def test_a_turn_that_has_ended_leaves_its_session_idle_to_who_asks_also_before_its_end_is_synced(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(env={VARIABLE: "sync.before=EIO@2-"})  # the prompt's is the first
    session = daemon.new()
    session.prompt("hello")
    session.await_event("turn_completed")
    seen = session.get()
    assert (seen["state"], seen["turn_id"]) == ("idle", None)
    assert [s["session_id"] for s in daemon.call("session/list", state="idle")["sessions"]] == [session.id]
    assert daemon.call("session/list", state="running")["sessions"] == []


def test_a_disk_that_never_syncs_does_not_hold_up_a_stop(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={VARIABLE: "sync.before=EIO@1-"})
    session = daemon.new()
    with daemon.wire() as wire:
        wire.post("session/prompt", session_id=session.id, prompt="hello")
        until(lambda: session.events("turn_completed"))
        assert daemon.stop() == 0


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """What is opened there from now on cannot be written; what was open still can (a real remount refuses while it is)."""
    bind = [["mount", "--bind", directory, directory], ["mount", "-o", "remount,bind,ro", directory]]
    if os.getuid() != 0 or any(subprocess.run(command, capture_output=True).returncode for command in bind):
        pytest.skip("needs root and a mount namespace that takes bind mounts")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.fault(55)
def test_a_state_directory_that_is_read_only_for_a_while_is_said_so_and_the_turn_goes_on_after_it(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(limits={"inline_bytes": 1024}, timeouts={"model_idle": 1.0})
    session = daemon.new()
    turn = session.prompt(f"@stream 5\n@wait-file {tmp_path}/go\n@huge 3000\n@stream 7")
    session.await_event("content_delta", nth=5)
    with read_only(daemon.state):
        (tmp_path / "go").touch()
        until(lambda: session.get()["phase"] == "blocked")
        for refused in (lambda: session.prompt("not now"), daemon.new):
            with pytest.raises(ClisupError) as caught:
                refused()
            assert caught.value.kind == "storage_failed" and "Read-only" in caught.value.message
        storage = daemon.call("daemon/status")["daemon"]["storage"]
        assert (storage["state"], storage["writable"]) == ("read_only", False)
        since = time.monotonic()
        until(lambda: time.monotonic() - since > 1.5)  # longer than model_idle: the timers stand still
        assert session.get()["phase"] == "blocked"
    assert session.end_of(turn)["outcome"] == "completed"
    assert session.chunks() == [*range(5), *range(7)] and session.ask("on")["outcome"] == "completed"
    until(lambda: _storage_unless_ok(daemon) is None)


@pytest.mark.fault(55)
def test_a_follower_of_the_clis_own_lines_waits_for_those_that_cannot_be_read(serve: Callable[..., Harness]) -> None:
    daemon = armed(serve, "spool.range=EIO@1-3")
    session = daemon.new()
    session.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, raw=True)
        seen = [wire.event() for _ in range(session.get()["next_seq"] - 1)]
        assert wire.call("ping") is not None
    assert all(event.get("native") for event in seen if event["source"] == "backend")
    assert any(event["source"] == "backend" for event in seen)

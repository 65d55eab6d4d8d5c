"""Retention: what is too old or too much goes by whole segments, and whoever comes later is told of the gap."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from harness import Harness, until
from session_probe import SessionProbe
from wire import Wire

from clisup.config.model import RetentionConfig
from clisup.daemon.ops.retention import Retention, removable_parts
from clisup.errors import ClisupError, WorldError
from clisup.policy.retention import Part, expired
from clisup.policy.wall_time import ClockLook
from clisup.store.journal_store import JournalStore
from clisup.store.session_dir import SessionDir
from clisup.store.stored_sizes import Segment, Stored

SMALL = {"segment_bytes": 65536}


def raw(**retention: float) -> str:
    """Retention as a table of the configuration, looked at all the time."""
    return "[daemon.retention]\nevery_s = 0.05\n" + "".join(f"{key} = {value}\n" for key, value in retention.items())


def grow(session: SessionProbe, turns: int = 3) -> None:
    """A journal of several segments."""
    for _ in range(turns):
        session.ask("@stream 300 400\n@stderr some words\nbye")


def segments(session: SessionProbe) -> list[int]:
    return sorted(int(path.stem) for path in (session.dir / "journal").glob("*.jsonl"))


def runs(session: SessionProbe) -> list[int]:
    return sorted(int(path.name) for path in (session.dir / "runs").iterdir())


def age(session: SessionProbe, keep: int, days: float = 40) -> None:
    """Make all but the last `keep` segments look old."""
    paths = sorted((session.dir / "journal").glob("*.jsonl"))
    then = time.time() - days * 86_400
    for path in paths[: len(paths) - keep]:
        os.utime(path, (then, then))


def gap_of(wire: Wire) -> dict[str, Any]:
    frame = until(lambda: wire.frame())
    assert frame["method"] == "session/gap", frame
    return dict(frame["params"])


def test_old_segments_go_with_the_runs_that_ended_in_them(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=30, bytes=0))
    session = daemon.new()
    grow(session, 4)
    before, stored = segments(session), session.events()
    assert len(before) > 4 and runs(session) == [1, 2, 3, 4]
    age(session, keep=2)
    until(lambda: segments(session) == before[-2:])
    first = before[-2]
    until(lambda: session.get()["first_seq"] == first)
    ended = [e["seq"] for e in stored if e["type"] == "turn_completed"]
    assert runs(session) == [n for n, seq in enumerate(ended, start=1) if seq >= first]
    with daemon.wire() as wire:
        assert wire.call("session/subscribe", session_id=session.id, after_seq=0)["first_seq"] == first
        assert gap_of(wire) == {"session_id": session.id, "from_seq": 1, "to_seq": first - 1, "reason": "retention"}
        assert [wire.event() for _ in stored[first - 1 :]] == stored[first - 1 :]
    page = session.call("events", after_seq=3, limit=5)
    assert page["gaps"] == [{"from_seq": 4, "to_seq": first - 1, "reason": "retention"}]
    assert page["events"] == stored[first - 1 : first + 4]


def test_what_was_removed_stays_so_after_a_restart_and_the_session_goes_on(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=30, bytes=0))
    session = daemon.new()
    grow(session)
    session.ask("remember", key="k")
    totals = session.get()["tokens"]
    age(session, keep=0)
    until(lambda: session.get()["first_seq"] == session.get()["next_seq"])
    until(lambda: runs(session) == [])
    daemon.restart()
    summary = session.get()
    assert summary["first_seq"] == summary["next_seq"] and summary["tokens"] == totals
    answer = session.call("prompt", prompt="remember", key="k")
    assert answer["delivery"] == "duplicate"
    with pytest.raises(ClisupError) as gone:
        session.ask("remember", key="k")
    assert gone.value.kind == "turn_not_found" and "retention" in gone.value.message
    assert session.ask("more")["turn_id"] == "t5"
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0)
        assert gap_of(wire)["to_seq"] == summary["next_seq"] - 1
        assert wire.event()["seq"] == summary["next_seq"]


def test_above_the_size_the_oldest_go_first_whosever_they_are(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=0, bytes=0))
    old, young = daemon.new(), daemon.new()
    grow(old)
    grow(young)
    age(old, keep=0, days=1)
    before = segments(young)
    total = sum(path.stat().st_size for path in (daemon.state / "sessions").rglob("*") if path.is_file())
    daemon.configure(daemon=SMALL, raw=raw(days=0, bytes=int(total * 0.7)))
    daemon.restart()
    until(lambda: old.get()["first_seq"] > 1)
    assert segments(young) == before and young.get()["first_seq"] == 1


def test_a_running_turn_keeps_what_it_needs(serve: Callable[..., Harness]) -> None:
    """With room for nothing at all, what runs goes on, and ends."""
    daemon = serve(daemon=SMALL, raw=raw(days=0, bytes=1))
    session = daemon.new()
    session.prompt("@stream 1500 400 0.0005\n@bash echo done\n@exit 3")
    end = session_end(session)
    assert end["error"]["kind"] == "crashed"
    assert session.get()["first_seq"] > 1


def session_end(session: SessionProbe) -> dict[str, Any]:
    """The turn's end, from a subscription that is there from the beginning: later it may be gone."""
    with session.daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, types=["turn_completed"])
        return wire.event()


def test_a_reader_in_mid_file_finishes_it_and_is_told_of_the_rest(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=30, bytes=0))
    session = daemon.new()
    grow(session, 6)
    before, stored = segments(session), session.events()
    with daemon.wire() as wire:
        wire.post("session/subscribe", session_id=session.id, after_seq=0)
        while (frame := wire.frame()).get("method") != "session/event":
            pass  # the answer; with the first event the reader is at work, and is not read from until its files are gone
        age(session, keep=1)
        until(lambda: segments(session) == before[-1:])
        seen, at = [frame["params"]], 1
        while at < stored[-1]["seq"]:
            frame = wire.frame()
            if frame.get("method") == "session/gap":
                gap = frame["params"]
                assert gap["from_seq"] == at + 1 and gap["reason"] == "retention"
                at = gap["to_seq"]
            elif frame.get("method") == "session/event":
                assert frame["params"]["seq"] == at + 1
                seen.append(frame["params"])
                at += 1
    assert seen == [event for event in stored if event["seq"] in {e["seq"] for e in seen}]
    assert seen[0]["seq"] == 1 and len(seen) < len(stored)


def test_a_closed_session_goes_whole_and_leaves_no_cursor(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=30, bytes=0))
    session, other = daemon.new(), daemon.new()
    session.ask("hello")
    other.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=0, name="audit")
        wire.call("session/ack", name="audit", session_id=session.id, seq=3)
    session.call("close")
    age(session, keep=0)
    until(lambda: not session.dir.exists())
    cursor = daemon.state / "cursors/audit.jsonl"
    until(lambda: session.id not in cursor.read_text())
    assert other.id in cursor.read_text() and other.get()["first_seq"] == 1
    daemon.restart()
    assert [s["session_id"] for s in daemon.call("session/list")["sessions"]] == [other.id]


@pytest.mark.parametrize("point", ["retention.before", "retention.after"])
def test_a_kill_beside_the_removal_leaves_no_place_in_a_session_that_is_gone(
    serve: Callable[..., Harness], point: str
) -> None:
    """A session may be opened anew under the id: its first events are new to everybody."""
    daemon = serve()
    session = daemon.new(session_id="11111111-1111-4111-8111-111111111111")
    session.ask("hello")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id="*", after_seq=0, name="audit")
        wire.call("session/ack", name="audit", session_id=session.id, seq=session.get()["next_seq"] - 1)
    session.call("close")
    daemon.kill()
    age(session, keep=0)
    daemon.configure(raw=raw(days=30, bytes=0))
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.process = daemon.launch()
    assert daemon.process.wait(40) == -signal.SIGKILL
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.configure(raw=raw(days=30, bytes=0))
    daemon.start()
    until(lambda: not daemon.call("session/list", state="closed")["sessions"])
    again = daemon.new(session_id=session.id)
    again.ask("again")
    with daemon.wire() as wire:
        begin = wire.call("session/subscribe", session_id="*", name="audit")["cursors"]
        assert begin.get(session.id, 0) == 0
        assert wire.event()["seq"] == 1


@pytest.mark.parametrize("point", ["retention.before", "retention.after", "segment.before", "segment.after"])
def test_a_kill_in_the_middle_of_it_leaves_a_journal_that_is_whole(serve: Callable[..., Harness], point: str) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=0, bytes=0))
    session = daemon.new()
    grow(session)
    stored = session.events()
    daemon.kill()
    age(session, keep=0)
    daemon.configure(daemon=SMALL, raw=raw(days=30, bytes=0))
    daemon.env["CLISUP_FAILPOINTS"] = f"{point}=kill"
    daemon.process = daemon.launch()
    assert daemon.process.wait(40) == -signal.SIGKILL
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.configure(daemon=SMALL, raw=raw(days=0, bytes=0))
    daemon.start()
    first = session.get()["first_seq"]
    page = session.call("events", after_seq=0, limit=1000)
    assert page["events"] == stored[first - 1 :][: len(page["events"])]
    assert session.get()["next_seq"] == stored[-1]["seq"] + 1
    assert session.ask("more")["outcome"] == "completed"


def test_a_disk_that_refuses_is_told_and_tried_again(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon=SMALL, raw=raw(days=30, bytes=0), env={"CLISUP_FAILPOINTS": "retention.before=EIO@1-3"})
    session = daemon.new()
    grow(session)
    age(session, keep=0)
    until(lambda: session.get()["first_seq"] == session.get()["next_seq"])
    assert daemon.log.read_text().count("retention failed") == 3


def test_segments_go_in_their_order_with_their_runs_also_where_the_file_system_says_that_a_later_one_is_older() -> None:
    """A look at the files is no single moment, a clock may be set back, and a backup makes old files young."""
    segments = [Segment(1, 10, 90.0, 0, None), Segment(5, 10, 20.0, 1, None), Segment(9, 10, 95.0, 2, None)]
    parts = removable_parts("s", Stored(segments, {1: 100, 2: 100, 3: 100}), closed=False, next_seq=12, last_too=True)
    assert [(part.upto, part.runs, part.written) for part in parts] == [
        (4, (1,), 90.0),
        (8, (2,), 90.0),
        (11, (3,), 95.0),
    ]
    assert expired(parts, clock=ClockLook(92.0, "b", 0.0), days=60 / 86_400, limit=0) == []


async def _of_closed(manager: Any, names: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """One pass, to which these closed sessions are due."""

    async def due(_: Retention) -> list[Part]:
        return [Part(name, None, (), 10, 0.0) for name in names]

    monkeypatch.setattr(Retention, "due", due)
    return await Retention(manager, RetentionConfig()).once()


def test_what_cannot_be_removed_and_what_a_client_removed_first_keep_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted = []

    async def delete(session_id: str) -> None:
        if session_id == "a":
            raise WorldError("cannot remove a", kind="storage_failed", hint="")
        deleted.append(session_id)

    sessions = {name: object() for name in "acd"}  # a client has deleted b since it was looked at
    manager = SimpleNamespace(find=sessions.get, delete=delete)
    assert trio.run(_of_closed, manager, "abcd", monkeypatch) == 3
    assert deleted == ["c", "d"]


def test_a_segment_that_could_not_be_removed_goes_with_the_next_pass_and_before_any_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = SessionDir(str(tmp_path), "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11")
    journal = Path(directory.journal)
    journal.mkdir(parents=True)
    for seq in (1, 5, 9):
        (journal / f"{seq:012d}.jsonl").touch()
    store = JournalStore(directory.journal, segment_bytes=65536)
    store._segments = [1, 5, 9]
    store.next_seq = 12
    session = SimpleNamespace(dir=directory, recorder=_Recorder(store))
    services = SimpleNamespace(storage=SimpleNamespace(watched=nullcontext))
    retention = Retention(cast("Any", SimpleNamespace(find=lambda _: session, services=services)), RetentionConfig())
    unlink = os.unlink

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    for upto in (4, 8):
        with pytest.raises(WorldError):
            trio.run(retention.remove, Part(directory.id, upto, (), 10, 0.0))
    monkeypatch.setattr(os, "unlink", unlink)
    trio.run(retention.remove, Part(directory.id, 4, (), 10, 0.0))
    assert [path.name for path in journal.iterdir()] == ["000000000009.jsonl"]


class _Recorder:
    """As much of one as retention asks."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    @property
    def first_seq(self) -> int:
        return self._store.first_seq

    def release(self, upto: int) -> list[str]:
        return self._store.release(upto, {})

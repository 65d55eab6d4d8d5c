"""Durable cursors: forward only, at once on disk, bounded in number and in size."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import arm
from clisup.store import cursor_store
from clisup.store.cursor_store import CursorStore

A, B = (f"0d9c1c1e-0000-4000-8000-00000000000{n}" for n in "ab")


@pytest.fixture
def store(tmp_path: Path) -> CursorStore:
    return CursorStore(str(tmp_path), limit=3)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def again(tmp_path: Path) -> CursorStore:
    """What a next daemon finds."""
    return CursorStore(str(tmp_path), limit=3)


def seqs(store: CursorStore, name: str) -> dict[str, int]:
    cursor = store.get(name)
    assert cursor is not None
    return cursor.seqs


def test_a_move_is_on_disk_when_it_returns(store: CursorStore, tmp_path: Path) -> None:
    cursor = store.make("indexer")
    assert cursor.move(A, 5) == 5
    assert cursor.move(B, 7) == 7
    assert seqs(again(tmp_path), "indexer") == {A: 5, B: 7}


def test_a_cursor_never_goes_back(store: CursorStore, tmp_path: Path) -> None:
    cursor = store.make("indexer")
    cursor.move(A, 5)
    assert cursor.move(A, 3) == 5
    assert seqs(again(tmp_path), "indexer") == {A: 5}


def test_a_torn_line_is_cut_and_the_next_move_is_whole(store: CursorStore, tmp_path: Path) -> None:
    store.make("indexer").move(A, 5)
    with open(tmp_path / "cursors/indexer.jsonl", "ab") as file:
        file.write(b'["0d9c1c1e-0000-40')
    cursor = again(tmp_path).get("indexer")
    assert cursor is not None and cursor.seqs == {A: 5}
    cursor.move(A, 6)
    assert seqs(again(tmp_path), "indexer") == {A: 6}


def test_a_long_file_is_written_anew(store: CursorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_store, "COMPACT_BYTES", 1000)
    cursor = store.make("indexer")
    for seq in range(1, 2000):
        cursor.move(A, seq)
    assert (tmp_path / "cursors/indexer.jsonl").stat().st_size < 1300
    assert seqs(again(tmp_path), "indexer") == {A: 1999}


def test_there_is_room_for_so_many_names_and_forgetting_makes_more(store: CursorStore) -> None:
    for name in ("a", "b", "c"):
        store.make(name)
    with pytest.raises(UsageError) as refused:
        store.make("d")
    assert refused.value.kind == "limit_exceeded" and refused.value.data["limit"] == "max_cursors"
    store.forget("b")
    store.forget("never there")
    store.make("d")
    assert store.names() == ["a", "c", "d"] and store.get("b") is None


def test_deleted_sessions_leave_every_cursor(store: CursorStore, tmp_path: Path) -> None:
    store.make("one").move(A, 5)
    store.make("two").move(B, 5)
    again(tmp_path).drop_sessions({A})
    assert seqs(again(tmp_path), "one") == {} and seqs(again(tmp_path), "two") == {B: 5}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_refuses_leaves_the_cursor_where_it_was(store: CursorStore, tmp_path: Path, number: int) -> None:
    cursor = store.make("indexer")
    cursor.move(A, 5)
    arm(f"cursor.before={errno.errorcode[number]}")
    with pytest.raises(WorldError) as refused:
        cursor.move(A, 6)
    assert refused.value.kind == "storage_failed" and refused.value.data["errno"] == number
    assert cursor.seqs == seqs(again(tmp_path), "indexer") == {A: 5}
    assert cursor.move(A, 6) == 6


def test_half_a_line_on_a_full_disk_is_taken_back(
    store: CursorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = store.make("indexer")
    write = os.write
    monkeypatch.setattr(cursor_store.os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(WorldError):
        cursor.move(A, 5)
    monkeypatch.undo()
    cursor.move(A, 6)
    assert seqs(again(tmp_path), "indexer") == {A: 6}


def test_a_damaged_file_is_told_and_can_be_forgotten(store: CursorStore, tmp_path: Path) -> None:
    store.make("indexer")
    (tmp_path / "cursors/indexer.jsonl").write_bytes(b"\0\0\0\n")
    with pytest.raises(WorldError) as refused:
        again(tmp_path).get("indexer")
    assert refused.value.kind == "storage_failed" and "indexer.jsonl" in refused.value.message
    store.forget("indexer")
    assert again(tmp_path).get("indexer") is None


def test_a_name_that_the_disk_keeps_is_told_and_goes_on(
    store: CursorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = store.make("indexer")
    cursor.move(A, 5)

    def refuse(path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with monkeypatch.context() as patch, pytest.raises(WorldError) as refused:
        patch.setattr(os, "unlink", refuse)
        store.forget("indexer")
    assert (refused.value.kind, refused.value.data["errno"]) == ("storage_failed", errno.EROFS)
    assert store.get("indexer") is cursor
    assert seqs(again(tmp_path), "indexer") == {A: 5}


def test_a_beginning_that_the_disk_refuses_is_none(store: CursorStore, tmp_path: Path) -> None:
    cursor = store.make("n")
    arm("file.write=ENOSPC")
    with pytest.raises(WorldError):
        cursor.begin({A: 5}, all_known=True)
    arm("")
    assert (cursor.seqs, cursor.all_known) == ({}, False)
    cursor.begin({A: 5}, all_known=True)
    assert seqs(again(tmp_path), "n") == {A: 5}


def test_a_deletion_that_the_disk_refuses_is_tried_again(store: CursorStore, tmp_path: Path) -> None:
    store.make("n").begin({A: 5, B: 6}, all_known=False)
    arm("file.write=ENOSPC")
    with pytest.raises(WorldError):
        store.drop_sessions([A])
    arm("")
    store.drop_sessions([A])
    assert seqs(again(tmp_path), "n") == {B: 6}


@pytest.mark.parametrize(
    "damage",
    [
        b"rubbish\n",
        b'{"v":1,"cursors":[]}\n',
        b'{"v":1,"cursors":{"a":1e999}}\n',
        b'{"v":1,"cursors":{}}\n["a",1e999]\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=lambda damage: damage[:40].decode().strip(),
)
def test_a_damaged_name_keeps_no_session_from_being_deleted(store: CursorStore, tmp_path: Path, damage: bytes) -> None:
    store.make("sound").begin({A: 5}, all_known=False)
    (tmp_path / "cursors" / "damaged.jsonl").write_bytes(damage)
    again(tmp_path).drop_sessions({A})
    assert seqs(again(tmp_path), "sound") == {}
    with pytest.raises(WorldError, match="damaged"):
        again(tmp_path).get("damaged")

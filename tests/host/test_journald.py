"""The journal's socket: entries large and small, a journal that is away or full, and nobody who waits for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from fake_journal import FakeJournal

from clisup.host.log_outlet import Outlet
from clisup.host.systemd.journald import JournalSocket, is_journal_stream
from clisup.ops.journald_entry import encode_entry, entry_of


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FakeJournal]:
    journal = FakeJournal(tmp_path / "j")
    yield journal
    if os.path.exists(journal.path):
        journal.close()


@pytest.fixture
def sender(journal: FakeJournal) -> Iterator[JournalSocket]:
    sender = JournalSocket(journal.path)
    yield sender
    sender.close()


def outlet_to(sender: JournalSocket) -> Outlet:
    return Outlet(sender, lambda record: encode_entry(entry_of(record)))


def test_an_entry_arrives_as_it_was_sent(journal: FakeJournal, sender: JournalSocket) -> None:
    fields = {"MESSAGE": "a\nb", "PRIORITY": "6", "CLISUP_SESSION": "s=1"}
    assert sender.send(encode_entry(fields))
    assert journal.entries() == [fields] and journal.files == 0


def test_one_that_no_datagram_holds_comes_in_a_sealed_memory_file(journal: FakeJournal, sender: JournalSocket) -> None:
    fields = {"MESSAGE": "x" * 40_000_000, "PRIORITY": "6"}  # far over net.core.wmem_max
    assert sender.send(encode_entry(fields))
    assert journal.entries() == [fields] and journal.files == 1
    assert sender.send(encode_entry(fields)) and not memory_files(), "the file is not kept here"


def memory_files() -> list[str]:
    """Those of entries that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in found if name.startswith("/memfd:clisup-log-entry")]


def test_a_journal_that_is_away_holds_nobody_up_and_learns_of_what_it_missed(
    journal: FakeJournal, sender: JournalSocket
) -> None:
    outlet = outlet_to(sender)
    outlet.msg({"event": "one", "level": "info"})
    path = Path(journal.path)
    journal.close()
    for _ in range(3):
        outlet.msg({"event": "lost", "level": "info"})
    again = FakeJournal(path)
    outlet.msg({"event": "two", "level": "info", "timestamp": "t"})
    found = again.entries()
    assert [entry["CLISUP_EVENT"] for entry in found] == ["log lines dropped", "two"]
    assert (found[0]["CLISUP_COUNT"], found[0]["PRIORITY"]) == ("3", "4")
    outlet.msg({"event": "three", "level": "info"})
    assert [entry["CLISUP_EVENT"] for entry in again.entries()] == ["three"], "told once"
    assert outlet.dropped == 3
    again.close()


def test_a_full_socket_holds_nobody_up_and_nothing_is_lost_unsaid(journal: FakeJournal, sender: JournalSocket) -> None:
    outlet = outlet_to(sender)
    sent = 0
    while outlet.dropped < 5:
        outlet.msg({"event": "x", "level": "info", "text": "y" * 1000})
        sent += 1
        assert sent < 1_000_000
    taken = len(journal.entries())
    assert taken == sent - 5
    outlet.msg({"event": "after", "level": "info"})
    assert [(entry["CLISUP_EVENT"], entry.get("CLISUP_COUNT")) for entry in journal.entries()] == [
        ("log lines dropped", "5"),
        ("after", None),
    ]


def test_stderr_is_the_journals_where_its_device_and_inode_are_named(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as file:
        there = os.fstat(file.fileno())
        named: dict[str, Any] = {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
        assert is_journal_stream(named, file.fileno())
        assert not is_journal_stream({"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino + 1}"}, file.fileno())
        assert not is_journal_stream({}, file.fileno())
        assert not is_journal_stream({"JOURNAL_STREAM": "nonsense"}, file.fileno())
    assert not is_journal_stream(named, 9999)

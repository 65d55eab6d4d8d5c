"""The journal: entries with their fields, any size, a journal that is away or full, and nobody who waits for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from fake_journal import FakeJournal

from clisup.host.log import LogOutput
from clisup.host.systemd.journal import MAX_ENTRY, JournalSocket, encode_entry, entry_of, is_journal_stream
from clisup.ops.log_events import LOG_EVENTS, MESSAGE_IDS


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


def outlet_to(sender: JournalSocket) -> LogOutput:
    return LogOutput(sender, lambda record: encode_entry(entry_of(record)))


def test_an_entry_arrives_as_it_was_sent(journal: FakeJournal, sender: JournalSocket) -> None:
    fields = {"MESSAGE": "a\nb", "PRIORITY": "6", "CLISUP_SESSION": "s=1"}
    assert sender.send(encode_entry(fields))
    assert journal.entries() == [fields]


def test_an_entry_of_any_size_fits_into_a_datagram(journal: FakeJournal, sender: JournalSocket) -> None:
    fields = {"MESSAGE": "x" * 40_000_000, "PRIORITY": "6"} | {f"CLISUP_{n}": "y" * 30_000 for n in range(100)}
    entry = encode_entry(fields)
    assert len(entry) <= MAX_ENTRY and sender.send(entry)
    (taken,) = journal.entries()
    assert taken["PRIORITY"] == "6" and fields["MESSAGE"].startswith(taken["MESSAGE"])
    assert taken["CLISUP_0"] == fields["CLISUP_0"]


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


RECORD = {
    "timestamp": "2026-01-01T00:00:00Z", "level": "warning", "event": "turn ended", "session": "s-1", "turn": "t1",
    "run": 2, "backend": "demo", "outcome": "failed", "cost_usd": None, "odd-näme!": ["a", "b c"], "ok": True,
    "code_file": "/x/turn.py", "code_line": 7, "code_func": "f",
}  # fmt: skip


def test_the_fields_can_be_searched_for_by_name() -> None:
    entry = entry_of(RECORD)
    assert entry["CLISUP_SESSION"] == "s-1" and entry["CLISUP_RUN"] == "2" and entry["CLISUP_OUTCOME"] == "failed"
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"]) == ("4", "clisup")
    assert (entry["CODE_FILE"], entry["CODE_LINE"], entry["CODE_FUNC"]) == ("/x/turn.py", "7", "f")
    assert entry["MESSAGE_ID"] == MESSAGE_IDS["turn ended"] and entry["CLISUP_EVENT"] == "turn ended"
    assert entry["CLISUP_OK"] == "true" and "CLISUP_COST_USD" not in entry


def test_the_message_reads_well_alone() -> None:
    assert entry_of(RECORD)["MESSAGE"] == (
        'turn ended session=s-1 turn=t1 run=2 backend=demo outcome=failed odd-näme!="[\\"a\\", \\"b c\\"]" ok=true'
    )
    assert entry_of({"event": "x", "exception": "Traceback\n  y"})["MESSAGE"] == "x\nTraceback\n  y"


def test_names_are_such_as_journald_takes() -> None:
    entry = entry_of(RECORD | {"x" * 100: 1})
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", name) for name in entry)
    assert "CLISUP_ODD_N_ME_" in entry
    for known in LOG_EVENTS.values():
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field) for field in known.fields)


def test_an_event_that_is_in_no_table_is_an_entry_too() -> None:
    assert entry_of({"event": "new", "level": "odd"})["PRIORITY"] == "6"


def test_a_value_with_a_line_end_has_its_length_before_it() -> None:
    assert encode_entry({"A": "x=y", "B": "a\nb", "C": "ä"}) == (
        b"A=x=y\nB\n\x03\x00\x00\x00\x00\x00\x00\x00a\nb\nC=\xc3\xa4\n"
    )


def test_nobody_can_smuggle_a_field_into_an_entry() -> None:
    data = encode_entry(entry_of({"event": "x\nPRIORITY=0", "who": "me\n_UID=0\nMESSAGE=forged"}))
    lines = data.split(b"\n")
    assert lines.count(b"PRIORITY=6") == 1 and b"CLISUP_WHO" in lines, "the name stands alone, the length follows"
    at = data.index(b"CLISUP_WHO\n") + len(b"CLISUP_WHO\n")
    size = int.from_bytes(data[at : at + 8], "little")
    assert data[at + 8 : at + 8 + size] == b"me\n_UID=0\nMESSAGE=forged"


def test_what_is_no_text_is_sent_all_the_same() -> None:
    assert encode_entry({"A": "\udcff"}) == b"A=?\n"

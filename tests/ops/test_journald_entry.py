"""An entry of the journal: names in capitals, values in one of two forms, a message for people."""

from __future__ import annotations

import re

from clisup.ops.journald_entry import encode_entry, entry_of
from clisup.ops.log_events import LOG_EVENTS, MESSAGE_IDS

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

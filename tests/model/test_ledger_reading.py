"""A ledger is the same whether it folds all of a journal or reads past what it does not fold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.journal import Source, encode_line, encode_snapshot, read_lines
from clisup.model.sessions.ledger import FOLDED, Ledger

TURN = {
    "turn_started": {"run": 1},
    "process_started": {"pid": 7},
    "session_init": {},
    "stderr": {},
    "process_exited": {},
}
SAID = ("message_start", "content_delta", "message", "tool_use", "tool_result", "message_stop", "unparsed")


def line(seq: int, kind: str, spool: str, memo: dict[str, Any] | None) -> bytes:
    fields = "".join(f',"{name}":{value}' for name, value in TURN.get(kind, {}).items())
    head = f'"session_id":"s","seq":{seq},"ts":"2026-01-02T03:04:05.000006Z","turn_id":"t1","source":"backend"'
    src = Source(1, spool, 10 * seq, 10 * seq + 9, seq % 2)  # type: ignore[arg-type]
    return encode_line(f'{{{head},"type":"{kind}"{fields}}}'.encode(), src=src if kind in SAID else None, memo=memo)


kinds = st.sampled_from([*TURN, *SAID, *SAID])
memos = st.none() | st.sampled_from([{"begin": {"out": 5, "err": 0}}, {"run": 1}, {"pid": 9}, {"background": ["b"]}])


@settings(max_examples=200)
@given(st.lists(st.tuples(kinds, st.sampled_from(["out", "err"]), memos), max_size=30))
def test_what_is_read_past_changes_nothing(events: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    lines = [line(at + 2, *event) for at, event in enumerate([("turn_started", "out", None), *events])]
    data = encode_snapshot({}) + b"".join(lines)
    all_of_it, some_of_it = Ledger(), Ledger()
    for record in read_lines(data):
        all_of_it.apply(record)
    for record in read_lines(data, FOLDED):
        some_of_it.apply(record)
    assert some_of_it == all_of_it

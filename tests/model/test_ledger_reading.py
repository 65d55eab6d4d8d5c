"""A ledger is the same whether it folds all of a journal or reads past what it does not fold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.model.envelope import FRAME_BEGIN, FRAME_END
from clisup.model.journal import Source, blocks_of, encode_block, encode_snapshot, read_entries
from clisup.model.sessions.ledger import FOLDED, Ledger

TURN = {
    "turn_started": {"run": 1},
    "process_started": {"pid": 7},
    "session_init": {},
    "stderr": {},
    "process_exited": {},
}
SAID = ("message_start", "content_delta", "message", "tool_use", "tool_result", "message_stop", "unparsed")


def frame(seq: int, kind: str) -> bytes:
    fields = "".join(f',"{name}":{value}' for name, value in TURN.get(kind, {}).items())
    head = f'"session_id":"s","seq":{seq},"ts":"2026-01-02T03:04:05.000006Z","turn_id":"t1","source":"backend"'
    return FRAME_BEGIN + f'{{{head},"type":"{kind}"{fields}}}'.encode() + FRAME_END


def source(seq: int, kind: str, spool: str) -> Source | None:
    return Source(1, spool, 10 * seq, 10 * seq + 9, seq % 2) if kind in SAID else None  # type: ignore[arg-type]


kinds = st.sampled_from([*TURN, *SAID, *SAID])
memos = st.none() | st.sampled_from([{"begin": {"out": 5, "err": 0}}, {"run": 1}, {"pid": 9}, {"background": ["b"]}])


@settings(max_examples=200)
@given(st.lists(st.tuples(kinds, st.sampled_from(["out", "err"]), memos), max_size=30))
def test_what_is_read_past_changes_nothing(events: list[tuple[str, str, dict[str, Any] | None]]) -> None:
    told = list(enumerate([("turn_started", "out", None), *events], 2))
    frames, sources = [frame(seq, kind) for seq, (kind, _, _) in told], [source(seq, *each[:2]) for seq, each in told]
    memos = {seq: memo for seq, (_, _, memo) in told if memo is not None}
    data = encode_snapshot({}) + b"".join(map(encode_block, blocks_of(2, frames, sources, memos)))
    all_of_it, some_of_it = Ledger(), Ledger()
    for record in read_entries(data)[0]:
        all_of_it.apply(record)
    for record in read_entries(data, FOLDED)[0]:
        some_of_it.apply(record)
    assert some_of_it == all_of_it

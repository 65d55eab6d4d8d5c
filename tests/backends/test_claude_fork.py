"""Which lines of a transcript make a fork, and how they stand in the copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.backends.claude.fork import ClaudeFork
from clisup.errors import UsageError
from clisup.model.sessions.turn_trace import TurnTrace

OLD, NEW = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
RULES = ClaudeFork()
Entry = dict[str, Any]


class Book:
    """A transcript in the making: each entry hangs on the one before it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.last: str | None = None

    def add(self, type_: str, *, parent: str | None = "", **fields: Any) -> str:
        uuid = f"u{len(self.entries)}"
        parent = self.last if parent == "" else parent
        self.entries.append({"parentUuid": parent, "type": type_, "uuid": uuid, "sessionId": OLD, **fields})
        self.last = uuid
        return uuid

    def user(self, text: Any, **fields: Any) -> str:
        return self.add("user", message={"role": "user", "content": text}, **fields)

    def answer(self, id_: str, *blocks: Entry, **fields: Any) -> str:
        content = list(blocks) or [{"type": "text", "text": f"answer {id_}"}]
        return self.add("assistant", message={"id": id_, "role": "assistant", "content": content}, **fields)

    def result(self, tool: str, **fields: Any) -> str:
        return self.user([{"type": "tool_result", "tool_use_id": tool, "content": "ok"}], **fields)

    def loose(self, type_: str, **fields: Any) -> None:
        self.entries.append({"type": type_, "sessionId": OLD, **fields})

    def lines(self) -> list[bytes]:
        return [json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in self.entries]


def trace(turn: str, *ids: str, prompt: str | None = None, **more: Any) -> TurnTrace:
    size = len(prompt.encode()) if prompt is not None else None
    return TurnTrace(turn, int(turn[1:]), size, prompt and prompt[:200], list(ids), done=True, **more)


def kept(book: Book | list[bytes], turns: Sequence[TurnTrace], upto: str | None, *, whole: bool = False) -> list[Entry]:
    lines = book.lines() if isinstance(book, Book) else book
    data = b"".join(lines)
    plan = RULES.plan(lines, turns, upto, whole=whole)
    return [json.loads(data[start:end]) for start, end in plan.parts]


def words(entries: list[Entry]) -> list[str]:
    """Prompts as they are, answers by their id, all else by its type."""
    said = []
    for entry in entries:
        message = entry.get("message") or {}
        content = message.get("content")
        result = isinstance(content, list) and content and content[0].get("type") == "tool_result"
        said.append(str(message.get("id") or ("result" if result else content) or entry["type"]))
    return said


def three() -> tuple[Book, list[TurnTrace]]:
    book = Book()
    turns = []
    for n in (1, 2, 3):
        book.loose("queue-operation", operation="enqueue")
        book.user(f"prompt {n}")
        book.add("attachment", attachment={"type": "date"})
        book.loose("api-request", id=n)
        book.answer(f"m{n}")
        book.loose("last-prompt", leafUuid=book.last)
        book.loose("cost-state", totalCostUSD=n)
        turns.append(trace(f"t{n}", f"m{n}"))
    return book, turns


def test_a_fork_at_a_turn_ends_with_that_turn() -> None:
    book, turns = three()
    one = ["prompt 1", "attachment", "m1"]
    two = [*one, "last-prompt", "prompt 2", "attachment", "m2"]
    assert words(kept(book, turns, "t1")) == one
    assert words(kept(book, turns, "t2")) == two
    assert words(kept(book, turns, "t3")) == [*two, "last-prompt", "prompt 3", "attachment", "m3"]


def test_a_whole_fork_has_all_but_the_clis_own_books() -> None:
    book, turns = three()
    foreign = book.user("by hand")
    left_out = {"api-request", "cost-state", "queue-operation"}
    entries = kept(book, turns, "t3", whole=True)
    assert entries == [entry for entry in book.entries if entry["type"] not in left_out]
    assert entries[-1]["uuid"] == foreign


def test_what_points_to_an_entry_that_is_not_taken_is_left_out() -> None:
    book, turns = three()
    book.entries.insert(3, {"type": "last-prompt", "leafUuid": "u20", "sessionId": OLD})
    assert "last-prompt" not in words(kept(book, turns, "t1"))


def test_results_of_parallel_tools_are_taken_although_only_the_last_is_in_the_chain() -> None:
    book = Book()
    book.user("Use your tools.")
    calls = [book.answer("m1", {"type": "tool_use", "id": tool, "name": "Bash"}) for tool in ("a", "b", "c")]
    for tool, call in zip("abc", calls, strict=True):
        book.result(tool, parent=call)
    book.answer("m2")
    book.user("next")
    book.answer("m3")
    turns = [trace("t1", "m1", "m2"), trace("t2", "m3")]
    assert words(kept(book, turns, "t1")) == ["Use your tools.", "m1", "m1", "m1", "result", "result", "result", "m2"]


def test_a_branch_that_nobody_goes_on_from_is_not_the_history() -> None:
    book = Book()
    book.user("one")
    fork_point = book.answer("m1")
    book.user("left behind")
    book.answer("m2")
    book.user("instead", parent=fork_point)
    book.answer("m3")
    turns = [trace("t1", "m1"), trace("t2", "m2"), trace("t3", "m3")]
    assert words(kept(book, turns, "t3")) == ["one", "m1", "instead", "m3"]
    with pytest.raises(UsageError) as caught:
        kept(book, turns, "t2")
    assert caught.value.kind == "turn_not_found"


def test_a_turn_without_a_message_is_known_by_its_prompt() -> None:
    book = Book()
    book.user("one")
    book.answer("m1")
    book.user("killed")
    book.add("assistant", message={"id": "x", "model": "<synthetic>", "content": "No response requested."})
    book.user("three")
    book.answer("m3")
    turns = [trace("t1", "m1"), trace("t2", prompt="killed"), trace("t3", "m3")]
    assert words(kept(book, turns, "t1")) == ["one", "m1"]
    assert words(kept(book, turns, "t2")) == ["one", "m1", "killed"]
    unwritten = [turns[0], trace("t2", prompt="never written"), turns[2]]
    assert words(kept(book, unwritten, "t2")) == ["one", "m1"]


def test_what_somebody_else_asked_after_a_turn_is_not_the_turns() -> None:
    book = Book()
    for n in (1, 2, 3):
        book.user(f"prompt {n}")
        book.answer(f"m{n}")
    turns = [trace("t1", "m1"), trace("t2", "m3")]
    assert words(kept(book, turns, "t1")) == ["prompt 1", "m1"]
    assert len(kept(book, turns, "t2")) == 6


def test_equal_prompts_without_message_ids_are_told_apart_by_where_their_runs_wrote() -> None:
    book = Book()
    sizes = []
    for _ in range(4):
        sizes.append(sum(map(len, book.lines())))
        book.user("again")
        book.add("assistant", message={"content": [{"type": "text", "text": "word"}]})
    turns = [
        trace(f"t{n + 1}", f"told{n}", prompt="again", at=sizes[n], until=sizes[n + 1] if n < 3 else None)
        for n in (2, 3)  # the journal's beginning is gone
    ]
    assert len(kept(book, turns, "t3")) == 6


def test_a_compaction_belongs_to_the_turn_that_asked_for_it_or_had_it() -> None:
    book = Book()
    book.user("one")
    last = book.answer("m1")
    book.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=last)
    book.user("This session is being continued", isCompactSummary=True)
    book.user("<command-name>/compact</command-name>")
    book.user("three")
    book.answer("m3")
    book.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=book.last)
    book.user("This session is being continued", isCompactSummary=True)
    book.answer("m4")
    turns = [trace("t1", "m1"), trace("t2", prompt="/compact"), trace("t3", "m3", "m4")]
    assert words(kept(book, turns, "t1")) == ["one", "m1"]
    assert words(kept(book, turns, "t2"))[2:4] == ["system", "This session is being continued"]
    assert len(kept(book, turns, "t2")) == 5 and len(kept(book, turns, "t3")) == 10


def test_a_subagents_lines_neither_begin_nor_end_anything() -> None:
    book = Book()
    book.user("one")
    call = book.answer("m1", {"type": "tool_use", "id": "a", "name": "Agent"})
    book.user("the subagent's prompt", isSidechain=True, parent=None)
    book.answer("s1", isSidechain=True)
    book.result("a", parent=call)
    book.answer("m2")
    book.user("two")
    book.answer("m3")
    turns = [trace("t1", "m1", "m2"), trace("t2", "m3")]
    assert words(kept(book, turns, "t1")) == ["one", "m1", "the subagent's prompt", "s1", "result", "m2"]


def test_a_plan_says_whether_the_last_words_are_written_yet() -> None:
    book, turns = three()
    assert RULES.plan(book.lines(), turns, "t3", whole=True).complete
    turns[2].message_ids.append("m4")
    assert not RULES.plan(book.lines(), turns, "t3", whole=True).complete
    assert not RULES.plan(book.lines(), turns, "t3", whole=False).complete


def test_a_torn_last_line_and_garbage_are_passed_over() -> None:
    book, turns = three()
    lines = book.lines()
    lines.insert(4, b"\xff garbage\n")
    lines.insert(5, b"[" * 100_000 + b"\n")
    lines.append(b'{"type":"user","uuid":"torn","message":{"content":"half')
    entries = kept(lines, turns, "t3", whole=True)
    assert words(entries)[-1] == "last-prompt" and len(entries) == 12


def test_a_transcript_without_anything_is_no_history() -> None:
    for whole in (True, False):
        with pytest.raises(UsageError) as caught:
            kept(Book(), [trace("t1", prompt="one")], "t1", whole=whole)
        assert caught.value.kind == "turn_not_found"


def test_ten_thousand_turns_whose_prompts_are_not_there_take_no_time() -> None:
    book = Book()
    for _ in range(10_000):
        book.user("somebody's")
    book.user("one")
    turns = [trace(f"t{n}", prompt="gone") for n in range(1, 3000)] + [trace("t3000", prompt="one")]
    with pytest.raises(UsageError):
        kept(book, turns, "t1")


# -- the copy ---------------------------------------------------------------------------------------------------------


def test_a_line_of_the_copy_has_the_new_id_and_is_else_byte_for_byte_the_same() -> None:
    line = (
        b'{"parentUuid":null,"sessionId":"%s","message":{"content":"\\ud83d half, \\"sessionId\\":\\"%s\\" in a text"}}\n'
        % (OLD.encode(), OLD.encode())
    )
    copied = RULES.copy(line, NEW)
    assert copied == line.replace(b'"sessionId":"%s"' % OLD.encode(), b'"sessionId":"%s"' % NEW.encode())
    assert copied.count(OLD.encode()) == 1


def test_a_line_without_an_id_is_copied_as_it_is() -> None:
    line = b'{"type":"user","uuid":"u","parentUuid":null,"message":{"content":"x"}}\n'
    assert RULES.copy(line, NEW) == line


def test_a_line_with_spaces_is_made_compact() -> None:
    line = json.dumps({"type": "user", "sessionId": OLD, "message": {"content": "a: b, c"}}).encode() + b"\n"
    copied = RULES.copy(line, NEW)
    assert json.loads(copied) == {"type": "user", "sessionId": NEW, "message": {"content": "a: b, c"}}
    assert b'": ' not in copied and copied.endswith(b"\n")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["content", "id", "x"]), inner),
    max_leaves=4,
)
NAMES = (
    "type",
    "uuid",
    "parentUuid",
    "logicalParentUuid",
    "message",
    "isSidechain",
    "sessionId",
    "leafUuid",
    "subtype",
)
ODD = st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(["user", "assistant", "u1", "u2"]), max_size=6)


@given(st.lists(ODD, max_size=12))
def test_no_transcript_makes_it_raise_anything_but_its_own_error(entries: list[Entry]) -> None:
    lines = [json.dumps(entry).encode() + b"\n" for entry in entries]
    data = b"".join(lines)
    for whole in (True, False):
        try:
            plan = RULES.plan(lines, [trace("t1", "m1"), trace("t2", prompt="two")], "t2", whole=whole)
        except UsageError as error:
            assert error.kind == "turn_not_found"
            continue
        assert list(plan.parts) == sorted(plan.parts)
        for start, end in plan.parts:
            assert data[start:end] in lines
            json.loads(RULES.copy(data[start:end], NEW))

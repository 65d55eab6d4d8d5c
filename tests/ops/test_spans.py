"""Spans from events: times, ids and parents follow from the journal alone; names by the conventions."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes

from clisup.model.events import EVENT_TYPES
from clisup.ops.spans import (
    MAX_CONTENT,
    MAX_NAME,
    MAX_TOOLS,
    TRACED,
    SessionTrace,
    Span,
    TracedSession,
    span_id,
    trace_id,
)

SESSION = "0d9c1c1e-0000-4000-8000-000000000000"
KNOWN = {
    value for module in (gen_ai_attributes, error_attributes) for value in vars(module).values() if isinstance(value, str)
}  # fmt: skip


class Stream:
    """Events one after the other, a millisecond apart."""

    def __init__(self, kind: str = "claude", **options: Any) -> None:
        self.trace = SessionTrace(TracedSession(SESSION, "mine", kind, "asked-for"), **options)
        self.seq = 0

    def say(self, type_: str, turn_id: str | None = "t1", **fields: Any) -> list[Span]:
        self.seq += 1
        ts = f"2026-01-01T00:00:00.{self.seq:03d}000Z"
        event = {"session_id": SESSION, "seq": self.seq, "ts": ts, "turn_id": turn_id, "source": "backend"}
        return self.trace.see({**event, "type": type_, **fields})

    def tool(self, id_: str, parent: str | None = None, turn_id: str = "t1") -> None:
        self.say("tool_use", turn_id, tool_use_id=id_, name="Bash", input={"a": 1}, parent_tool_use_id=parent)

    def end(self, turn_id: str = "t1", outcome: str = "completed", **fields: Any) -> list[Span]:
        return self.say("turn_completed", turn_id, outcome=outcome, **fields)


def ms(number: int) -> int:
    return 1_767_225_600_000_000_000 + number * 1_000_000


def test_only_known_events_are_looked_at_and_none_that_comes_by_the_token() -> None:
    assert set(EVENT_TYPES) >= TRACED
    assert not TRACED & {"content_delta", "tool_progress", "stderr"}


def test_a_turn_begins_and_ends_when_its_events_say() -> None:
    stream = Stream()
    assert stream.say("turn_started", run=1) == []
    stream.say("session_init", model="big", backend_version="2.1")
    stream.say("message_start", model="other")
    (span,) = stream.end(usage={"input_tokens": 1, "cache_read_input_tokens": 10, "output_tokens": 5}, cost_usd=0.1)
    assert (span.start_ns, span.end_ns, span.error, span.parent_id) == (ms(1), ms(4), None, None)
    assert (span.name, span.kind) == ("invoke_agent mine", "client")
    wanted = {
        "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "big", "gen_ai.agent.version": "2.1",
        "gen_ai.usage.input_tokens": 11, "gen_ai.usage.cache_read.input_tokens": 10, "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.time_to_first_chunk": 0.002, "clisup.turn.cost_usd": 0.1,
    }  # fmt: skip
    assert wanted.items() <= span.attributes.items()
    assert "gen_ai.usage.reasoning.output_tokens" not in span.attributes, "unknown is not zero"


def test_a_model_that_nobody_told_is_the_one_that_was_asked_for() -> None:
    stream = Stream("new-kind")
    stream.say("turn_started", run=1)
    (span,) = stream.end()
    assert span.attributes["gen_ai.request.model"] == "asked-for"
    assert span.attributes["gen_ai.provider.name"] == "new-kind"


def test_tools_are_children_of_the_turn_and_a_subagents_of_its_tool() -> None:
    stream = Stream()
    stream.say("turn_started", run=1)
    stream.tool("task")
    stream.tool("inner", parent="task")
    stream.say("tool_result", tool_use_id="inner", content="x")
    stream.say("tool_result", tool_use_id="inner", content="again", is_error=True)
    stream.say("tool_result", tool_use_id="task")
    turn, task, inner = stream.end()
    assert (task.parent_id, inner.parent_id) == (turn.span_id, task.span_id)
    assert {span.trace_id for span in (turn, task, inner)} == {trace_id(SESSION, "t1")}
    assert (inner.start_ns, inner.end_ns, inner.error) == (ms(3), ms(4), None)
    assert (task.start_ns, task.end_ns) == (ms(2), ms(6))


def test_a_tool_without_a_result_ends_with_the_turn_and_a_denied_one_says_so() -> None:
    stream = Stream()
    stream.say("turn_started", run=1)
    stream.tool("a")
    stream.tool("b")
    stream.say("permission_denied", tool_use_id="b", name="Bash")
    stream.say("tool_result", tool_use_id="b", is_error=True)
    turn, a, b = stream.end(outcome="timed_out", error={"kind": "idle_timeout"})
    assert (a.end_ns, a.error) == (turn.end_ns, "no_result")
    assert b.error == b.attributes["error.type"] == "permission_denied"
    assert turn.error == turn.attributes["error.type"] == "idle_timeout"


def test_an_interrupted_turn_is_no_error() -> None:
    stream = Stream()
    stream.say("turn_started", run=1)
    (span,) = stream.end(outcome="interrupted", error={"kind": "cancelled"}, duration_s=1.0)
    assert span.error is None and "error.type" not in span.attributes


def test_a_turn_whose_beginning_is_gone_takes_as_long_as_its_end_says() -> None:
    stream = Stream()
    stream.seq = 500
    (span,) = stream.end(duration_s=0.25)
    assert (span.start_ns, span.end_ns) == (ms(251), ms(501))
    (failed,) = stream.end("t2", outcome="failed", error={"kind": "spawn_failed"})
    assert failed.start_ns == failed.end_ns and failed.error == "spawn_failed"


def test_a_prompt_taken_out_of_the_queue_is_no_turn_and_leaves_the_running_one_open() -> None:
    stream = Stream()
    stream.say("turn_started", run=1)
    assert stream.end("t2", outcome="interrupted") == []
    assert stream.trace.open_since == 1
    assert len(stream.end()) == 1
    assert stream.trace.open_since is None


def test_the_same_events_give_the_same_spans_and_other_turns_other_ids() -> None:
    def spans() -> list[Span]:
        stream = Stream()
        stream.say("turn_started", run=1)
        stream.tool("a")
        return stream.end()

    assert spans() == spans()
    ids = {span_id(s, t, u) for s in (SESSION, "other") for t in ("t1", "t11") for u in (None, "", "1", "a")}
    assert len(ids) == 16
    assert all(0 < id_ < 2**64 for id_ in ids) and 0 < trace_id(SESSION, "t1") < 2**128


def test_more_tools_than_the_bound_are_counted_and_no_more() -> None:
    stream = Stream()
    stream.say("turn_started", run=1)
    for number in range(MAX_TOOLS + 3):
        stream.tool(f"u{number}")
    spans = stream.end()
    assert len(spans) == MAX_TOOLS + 1
    assert spans[0].attributes["clisup.turn.tools"] == MAX_TOOLS + 3


@pytest.mark.parametrize("content", [False, True])
def test_content_is_there_only_where_it_is_asked_for_and_is_cut(content: bool) -> None:
    stream = Stream(content=content)
    stream.say("turn_started", run=1, prompt_preview="PRIVATE")
    stream.say("tool_use", tool_use_id="a", name="Bash", input={"x": "PRIVATE"})
    stream.say("tool_result", tool_use_id="a", content="PRIVATE" * MAX_CONTENT)
    turn, tool = stream.end(text="PRIVATE", error={"kind": "server", "message": "PRIVATE"}, outcome="failed")
    assert ("PRIVATE" in repr((turn, tool))) is content
    if content:
        assert len(str(tool.attributes["gen_ai.tool.call.result"])) == MAX_CONTENT
        assert "PRIVATE" in str(turn.attributes["gen_ai.output.messages"])


def test_every_attribute_is_one_of_the_conventions_or_our_own() -> None:
    stream = Stream(content=True)
    stream.say("turn_started", run=1, prompt_preview="a")
    stream.say("session_init", model="m", backend_version="1")
    stream.say("message_start")
    stream.tool("a")
    usage = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_input_tokens", "reasoning_tokens"), 1)
    spans = stream.end(outcome="failed", error={"kind": "server"}, usage=usage, stop_reason="end_turn", text="b")
    names = {name for span in spans for name in span.attributes}
    assert len(names) > 15
    assert {name for name in names if not name.startswith("clisup.")} <= KNOWN


def test_what_happens_between_turns_belongs_to_none() -> None:
    stream = Stream()
    assert stream.say("session_init", None) == []
    stream.tool("a", turn_id="t9")
    assert stream.trace.open_since is None


def test_what_a_cli_calls_things_is_cut_and_made_sayable() -> None:
    """Half a surrogate pair or a number of 70 bits is valid JSON, and fails the encoding of a whole batch of spans."""
    stream = Stream(content=True)
    stream.say("turn_started", prompt_preview="\ud800")
    stream.say("session_init", model="m" * 100_000, backend_version="\udfff")
    stream.say("tool_use", tool_use_id="i" * 100_000, name="N\ud800" * 100_000, input={"a": "\ud800"})
    stream.say("tool_result", tool_use_id="i" * 100_000, content="\ud800", is_error=False)
    turn, tool = stream.end(usage={"input_tokens": 2**70}, stop_reason="\ud800" * 1000)
    for span in (turn, tool):
        texts = [span.name, *(v for v in span.attributes.values() if isinstance(v, str))]
        texts += [text for v in span.attributes.values() if isinstance(v, tuple) for text in v]
        assert all(len(text.encode()) <= MAX_NAME + 20 for text in texts)
    assert turn.attributes["gen_ai.usage.input_tokens"] == 2**63 - 1
    assert tool.error is None, "its result is found by the id that was cut"


def test_the_words_of_a_turn_are_not_even_kept_where_nobody_asked_for_them() -> None:
    """A turn of a thousand tools, each with a result of 256 KiB, would be a quarter of a gigabyte."""
    for content, most in ((False, 0), (True, 3 * MAX_CONTENT)):
        stream = Stream(content=content)
        stream.say("turn_started", prompt_preview="p" * 100)
        stream.say("tool_use", tool_use_id="a", name="Bash", input={"command": "x" * 100_000})
        stream.say("tool_result", tool_use_id="a", content="y" * 100_000)
        kept = json.dumps([dataclasses.asdict(turn) for turn in stream.trace._open.values()])
        assert kept.count("x") + kept.count("y") + kept.count("p" * 100) <= most + 10

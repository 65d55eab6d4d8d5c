"""Spans of a real daemon: one for each turn, at the times of its events, whatever dies and whoever does not listen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from harness import Harness, until
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from otlp_collector import Collector
from prometheus_client.parser import text_string_to_metric_families
from toml_text import toml

from clisup.config.model import TracingConfig
from clisup.daemon import start
from clisup.daemon.metrics import Metrics
from clisup.daemon.ops.tracing import Tracing
from clisup.errors import ConfigurationError
from clisup.host.otlp import readable, resource_of
from clisup.host.process.carrying import CarriedEnvironment, carried_file, clean_environment
from clisup.ops.spans import TRACED, SessionTrace, TracedSession, span_id, trace_id

CLIENT, INTERNAL, UNSET, ERROR = 3, 1, 0, 2  # of the wire
SECRET = "the words of a prompt, a tool and an answer"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture
def traced(serve: Callable[..., Harness], collector: Collector) -> Callable[..., Harness]:
    """A daemon that traces into the collector; keywords are further keys of the table."""

    def start(**keys: Any) -> Harness:
        return serve(raw=table(**{"endpoint": collector.url, "timeout_s": 30, **keys}))

    return start


def table(**keys: Any) -> str:
    return f"[tracing]\n{toml({'enabled': True, **keys})}"


def ns(event: dict[str, Any]) -> int:
    at = datetime.fromisoformat(event["ts"])
    return int(at.replace(microsecond=0).timestamp()) * 10**9 + at.microsecond * 1000


def counts(daemon: Harness) -> dict[str, int]:
    """What became of spans, as the metrics tell."""
    families = text_string_to_metric_families(daemon.call("daemon/metrics")["text"])
    found = {s.labels.get("result", s.name): int(s.value) for f in families for s in f.samples if "spans" in s.name}
    return {"queued": found.pop("clisup_spans_queued"), **found}


def turns_of(collector: Collector) -> list[dict[str, Any]]:
    return [span for span in collector.spans if span["name"].startswith("invoke_agent")]


def test_a_turn_is_one_span_and_its_tools_are_its_children(
    traced: Callable[..., Harness], collector: Collector
) -> None:
    daemon = traced(headers={"Authorization": "Bearer for the collector"}, service_name="models")
    session = daemon.new(model="demo-large")
    session.ask('@usage 30 7\n@cost 0.5\n@tool Read {"path": "a"} => text\n@bash false\nWell.')
    until(lambda: len(collector.spans) == 3)
    turn, read, bash = collector.spans
    events = {(e["type"], e.get("name")): e for e in session.events()}
    started, ended = events["turn_started", None], events["turn_completed", None]
    assert (turn["name"], turn["kind"], turn["status"]) == ("invoke_agent demo", CLIENT, (UNSET, ""))
    assert (turn["start_ns"], turn["end_ns"]) == (ns(started), ns(ended))
    assert turn["trace_id"] == f"{trace_id(session.id, 't1'):032x}" and turn["parent_id"] == ""
    assert turn["span_id"] == f"{span_id(session.id, 't1'):016x}"
    expected = {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "demo", "gen_ai.agent.name": "demo",
        "gen_ai.conversation.id": session.id, "gen_ai.request.model": "demo-large",
        "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 7, "gen_ai.response.finish_reasons": ["end_turn"],
        "clisup.turn.id": "t1", "clisup.turn.outcome": "completed", "clisup.turn.cost_usd": 0.5, "clisup.turn.tools": 2,
    }  # fmt: skip
    assert expected.items() <= turn["attributes"].items()
    assert 0 <= turn["attributes"]["gen_ai.response.time_to_first_chunk"] <= (turn["end_ns"] - turn["start_ns"]) / 1e9
    results = {event["tool_use_id"]: event for event in session.events("tool_result")}
    for tool, name in ((read, "Read"), (bash, "Bash")):
        use = events["tool_use", name]
        assert (tool["name"], tool["kind"], tool["parent_id"]) == (f"execute_tool {name}", INTERNAL, turn["span_id"])
        assert tool["trace_id"] == turn["trace_id"]
        assert (tool["start_ns"], tool["end_ns"]) == (ns(use), ns(results[use["tool_use_id"]]))
        assert tool["attributes"]["gen_ai.operation.name"] == "execute_tool"
        assert tool["attributes"]["gen_ai.tool.name"] == name
        assert tool["attributes"]["gen_ai.tool.call.id"] == use["tool_use_id"]
    assert read["status"][0] == UNSET and "error.type" not in read["attributes"]
    assert (bash["status"], bash["attributes"]["error.type"]) == ((ERROR, "tool_error"), "tool_error")
    assert collector.headers[0]["authorization"] == "Bearer for the collector"
    (resource,) = collector.resources
    assert resource["service.name"] == "models"
    assert resource["service.instance.id"] == daemon.identity()["instance_id"]
    until(lambda: counts(daemon) == {"queued": 0, "exported": 3, "failed": 0, "dropped": 0})


def test_a_failed_turn_is_a_span_with_its_error(traced: Callable[..., Harness], collector: Collector) -> None:
    daemon = traced()
    session = daemon.new()
    for prompt in ("@error rate_limit", "@bash exec sleep 100"):
        turn = session.prompt(prompt)
        if "sleep" in prompt:
            session.await_event("tool_use")
            session.call("interrupt", turn_id=turn)
        session.end_of(turn)
    until(lambda: len(turns_of(collector)) == 2)
    failed, interrupted = turns_of(collector)
    assert (failed["status"], failed["attributes"]["error.type"]) == ((ERROR, "rate_limit"), "rate_limit")
    assert interrupted["status"][0] == UNSET and "error.type" not in interrupted["attributes"]
    assert interrupted["attributes"]["clisup.turn.outcome"] == "interrupted"


def test_a_prompt_that_never_ran_has_no_span(traced: Callable[..., Harness], collector: Collector) -> None:
    daemon = traced()
    session = daemon.new()
    running = session.prompt(f"@wait-file {daemon.root}/go")
    dropped = session.prompt("never")
    session.cli()
    session.call("interrupt", turn_id=dropped)
    (daemon.root / "go").touch()
    session.end_of(running)
    session.ask("a third one")
    until(lambda: len(turns_of(collector)) == 2)
    assert [span["attributes"]["clisup.turn.id"] for span in turns_of(collector)] == ["t1", "t3"]
    began = {event["turn_id"]: ns(event) for event in session.events("turn_started")}
    assert [span["start_ns"] for span in turns_of(collector)] == [began["t1"], began["t3"]]


@pytest.mark.parametrize("content", [False, True])
def test_what_was_said_is_sent_only_where_that_is_asked_for(
    traced: Callable[..., Harness], collector: Collector, content: bool
) -> None:
    daemon = traced(content=content)
    daemon.new().ask(f'@tool Read {{"path": "{SECRET}"}} => {SECRET}\n{SECRET}')
    until(lambda: len(collector.spans) == 2)
    turn, tool = (span["attributes"] for span in collector.spans)
    assert (SECRET in json.dumps(collector.spans)) is content
    if content:
        assert SECRET in turn["gen_ai.input.messages"] and SECRET in turn["gen_ai.output.messages"]
        assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"path": SECRET}
        assert tool["gen_ai.tool.call.result"] == SECRET


def test_a_turn_in_which_the_daemon_is_killed_is_one_span_from_its_start_to_its_end(
    traced: Callable[..., Harness], collector: Collector
) -> None:
    daemon = traced()
    session = daemon.new()
    session.ask("before")
    turn = session.prompt(f"@bash true\n@wait-file {daemon.root}/go\n@bash true\nb")
    session.await_event("tool_result")
    daemon.restart()
    daemon.restart()
    (daemon.root / "go").touch()
    end = session.end_of(turn)
    session.ask("after")
    until(lambda: len(turns_of(collector)) >= 3)
    spans = turns_of(collector)
    assert [span["attributes"]["clisup.turn.id"] for span in spans] == ["t1", "t2", "t3"]
    (started,) = session.events("turn_started", turn_id=turn)
    assert (spans[1]["start_ns"], spans[1]["end_ns"]) == (ns(started), ns(end))
    until(lambda: len(collector.spans) == 5)
    assert sum(span["parent_id"] == spans[1]["span_id"] for span in collector.spans) == 2


def test_what_a_killed_daemon_had_not_got_rid_of_is_sent_once_by_the_next(
    traced: Callable[..., Harness], collector: Collector
) -> None:
    collector.answer = 503
    daemon = traced()
    sessions = [daemon.new() for _ in range(2)]
    for session in sessions:
        session.ask("one\n@bash true")
        session.ask("two")
    until(lambda: collector.refused)
    daemon.kill()
    collector.answer = 200
    daemon.start()
    until(lambda: len(collector.spans) >= 6)
    sessions[0].ask("three")
    until(lambda: len(collector.spans) >= 7)
    ids = [span["span_id"] for span in collector.spans]
    wanted = {f"{span_id(s.id, t):016x}" for s in sessions for t in ("t1", "t2")} | {
        f"{span_id(sessions[0].id, 't3'):016x}"
    }
    assert len(ids) == len(set(ids)) == 7 and wanted < set(ids)
    until(lambda: counts(daemon)["exported"] == 7)
    daemon.restart()
    sessions[1].ask("three")
    until(lambda: len(collector.spans) >= 8)
    assert len(collector.spans) == 8, "what was taken is not sent again"


def test_switched_off_nothing_is_sent(traced: Callable[..., Harness], collector: Collector) -> None:
    daemon = traced()
    session = daemon.new()
    session.ask("one")
    until(lambda: len(collector.spans) == 1)
    daemon.kill()
    config = daemon.config.read_text()
    daemon.config.write_text(config.replace("enabled = true", "enabled = false"))
    daemon.start()
    session.ask("two")
    assert counts(daemon) == {"queued": 0, "exported": 0, "failed": 0, "dropped": 0}
    assert len(collector.spans) == 1


def test_a_daemon_loads_neither_library_before_somebody_wants_it() -> None:
    code = "import sys, clisup.daemon.app, clisup.daemon.clients.handlers, clisup.daemon.start\n"
    code += "print([name for name in ('opentelemetry', 'prometheus_client', 'requests') if name in sys.modules])\n"
    code += "import clisup.daemon.ops.tracing, clisup.daemon.metrics\nprint('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False"]


def test_turns_of_before_tracing_was_first_switched_on_are_left_alone(
    serve: Callable[..., Harness], collector: Collector
) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("one")
    running = session.prompt(f"@wait-file {daemon.root}/go")
    session.await_event("session_init", turn_id=running)
    daemon.kill()
    daemon.configure(raw=table(endpoint=collector.url))
    daemon.start()
    (daemon.root / "go").touch()
    end = session.end_of(running)
    until(lambda: collector.spans)
    (span,) = collector.spans
    assert span["attributes"]["clisup.turn.id"] == running
    assert span["end_ns"] == ns(end)
    assert span["end_ns"] - span["start_ns"] == pytest.approx(end["duration_s"] * 1e9, abs=1)


def test_a_reload_switches_it_on_points_it_elsewhere_and_switches_it_off(
    serve: Callable[..., Harness], collector: Collector
) -> None:
    daemon = serve()
    session = daemon.new()
    with Collector() as other:
        for number, (keys, where) in enumerate([
            ({"endpoint": collector.url, "headers": {"X-Key": "a"}}, collector),
            ({"endpoint": other.url}, other),
            ({"enabled": False}, None),
        ]):  # fmt: skip
            daemon.configure(raw=table(**keys))
            changed = {change["key"]: change["effect"] for change in daemon.call("daemon/reload")["changed"]}
            assert changed and all(
                key.startswith("tracing.") and effect == "at_once" for key, effect in changed.items()
            )
            assert ("tracing.headers.X-Key" in changed) == (number < 2)
            session.ask("hello")
            if where is not None:
                until(lambda where=where: where.spans)
        assert (len(collector.spans), len(other.spans)) == (1, 1)
    assert counts(daemon)["exported"] == 2
    daemon.configure(raw="")


def test_nobody_there_costs_the_turns_nothing_and_is_counted(serve: Callable[..., Harness]) -> None:
    with Collector() as gone:
        url = gone.url
    daemon = serve(raw=table(endpoint=url, timeout_s=0.5))
    session = daemon.new()
    assert [session.ask(f"turn {n}")["outcome"] for n in range(3)] == ["completed"] * 3
    until(lambda: counts(daemon) == {"queued": 0, "exported": 0, "failed": 3, "dropped": 0})
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    assert [line["endpoint"] for line in lines if line["event"] == "spans not taken"] == [url], "it is told once"


@pytest.mark.parametrize("status", [302, 307, 308])
def test_spans_do_not_follow_a_redirect(traced: Callable[..., Harness], collector: Collector, status: int) -> None:
    with Collector() as other:
        collector.answer, collector.location = status, f"{other.url}/v1/traces"
        daemon = traced(timeout_s=0.5, headers={"x-api-key": "secret"})
        assert daemon.new().ask("Hi.")["outcome"] == "completed"
        until(lambda: counts(daemon)["failed"] == 1)
        assert other.spans == [] and other.headers == [] and other.refused == 0


def test_a_collector_that_never_answers_fills_a_bounded_queue_and_the_oldest_goes(
    traced: Callable[..., Harness], collector: Collector
) -> None:
    collector.silent.set()
    daemon = traced(max_queue=4, timeout_s=60)
    session = daemon.new()
    for number in range(7):
        assert session.ask(f"turn {number}")["outcome"] == "completed"
    until(lambda: counts(daemon) == {"queued": 4, "exported": 0, "failed": 0, "dropped": 2})
    assert session.daemon.call("ping")
    assert daemon.stop() == 0


def test_a_follower_of_traces_is_nobody_who_could_answer(traced: Callable[..., Harness]) -> None:
    session = traced().new()
    session.ask("hello")
    assert session.get()["subscribers"] == 0


def test_a_deleted_session_leaves_nothing_behind(traced: Callable[..., Harness], collector: Collector) -> None:
    daemon = traced()
    session = daemon.new()
    session.ask("one")
    until(lambda: counts(daemon)["exported"] == 1)
    session.call("close")
    session.call("delete")
    other = daemon.new()
    other.ask("one")
    until(lambda: len(collector.spans) == 2)
    daemon.restart()
    places = (daemon.state / "tracing" / "cursors" / "spans.jsonl").read_text()
    assert other.id in places and session.id not in places


def test_without_the_libraries_the_daemon_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(table())
    for name, value in clean_environment(
        {}, carried_file(CarriedEnvironment({}))
    ).items():  # as in the daemon's own second start
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError, match="OpenTelemetry libraries are not installed") as refused:
        start.serve(start.Flags(config=str(config), check=True))
    assert refused.value.exit_code == 78
    assert 'pip install "clisup[otel]"' in refused.value.hint


def test_the_sdk_takes_the_spans_of_a_real_event_stream(daemon: Harness) -> None:
    """The spans that core makes, through the SDK's own exporter in memory."""
    session = daemon.new()
    session.ask("@parallel\n@tool A => 1\n@tool B => 2\n@end\nDone.")
    session.ask("@die KILL")
    trace = SessionTrace(TracedSession(session.id, "demo", "demo"))
    exporter = InMemorySpanExporter()
    resource = resource_of({"service.name": "clisup"})
    for event in session.events():
        if event["type"] in TRACED:
            exporter.export([readable(span, resource) for span in trace.see(event)])
    first, a, b, second = exporter.get_finished_spans()
    assert [s.name for s in (first, a, b)] == ["invoke_agent demo", "execute_tool A", "execute_tool B"]
    assert first.kind is SpanKind.CLIENT and a.kind is SpanKind.INTERNAL
    assert a.parent is not None and a.parent.span_id == first.context.span_id and b.parent == a.parent
    assert first.status.status_code is StatusCode.UNSET
    assert (second.status.status_code, second.attributes["error.type"]) == (StatusCode.ERROR, "crashed")
    assert first.start_time < a.start_time <= b.start_time <= b.end_time <= first.end_time <= second.start_time
    assert json.loads(first.to_json())["context"]["trace_id"] == f"0x{trace_id(session.id, 't1'):032x}"
    assert trace.open_since is None


async def test_one_session_that_cannot_be_traced_ends_neither_the_others_traces_nor_the_daemon() -> None:
    """Whatever goes wrong with its journal: it is told, and the next one is read."""
    read: list[str] = []

    def reader_of(session_id: str) -> Callable[[int], Any]:
        def reader(_after: int) -> Any:
            read.append(session_id)
            raise AttributeError(session_id)  # of no kind that anybody foresaw

        return reader

    session = SimpleNamespace(
        spec=SimpleNamespace(backend="demo"),
        backend=SimpleNamespace(adapter=SimpleNamespace(kind="demo")),
        context=SimpleNamespace(setting=lambda _: None),
    )
    services = SimpleNamespace(metrics=Metrics(), at_ends=set())
    manager: Any = SimpleNamespace(find=lambda _: session, services=services)
    sender: Any = SimpleNamespace(close=lambda: None)
    cursor: Any = SimpleNamespace(seqs={})
    tracing = Tracing(manager, TracingConfig(), sender, cursor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tracing.run)
        for name in ("odd", "next"):
            ledger = SimpleNamespace(ends={"t1": 1})
            recorder: Any = SimpleNamespace(session_id=name, ledger=ledger, next_seq=2, reader=reader_of(name))
            tracing.notify(recorder)
            await trio.testing.wait_all_tasks_blocked()
        assert read == ["odd", "next"]
        tracing.end()

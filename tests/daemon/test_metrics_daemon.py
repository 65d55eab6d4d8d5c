"""`daemon/metrics` of a real daemon: the counters say what happened, never go down, and have few labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from harness import Harness, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from wire import Wire

from clisup.daemon.metrics import ENDED_BY, METRICS, NOTICES
from clisup.errors import ClisupError

ROOT = Path(__file__).parents[2]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(daemon: Harness) -> Samples:
    """(name, labels) -> value, as the official parser reads them."""
    text = daemon.call("daemon/metrics")["text"]
    return {
        (s.name, frozenset(s.labels.items())): s.value for family in prometheus(text) for s in family.samples
    }  # fmt: skip


class Counted:
    """What has changed since it was made: `by("clisup_turns_total", outcome="completed")`."""

    def __init__(self, daemon: Harness) -> None:
        self._daemon, self._before = daemon, samples(daemon)

    def by(self, name: str, **labels: str) -> float:
        now = samples(self._daemon)
        return _sum(now, name, labels) - _sum(self._before, name, labels)


def _sum(found: Samples, name: str, labels: dict[str, str]) -> float:
    return sum(value for (n, have), value in found.items() if n == name and labels.items() <= set(have))


@pytest.fixture(scope="module")
def hasty() -> Iterator[Harness]:
    harness = Harness(timeouts={"model_idle": 0.8, "linger": 0.5, "term_grace": 0.3})
    harness.start()
    yield harness
    harness.close()


def test_the_text_is_what_the_official_parsers_read_and_has_every_metric(daemon: Harness) -> None:
    daemon.new().ask("hello")
    answer = daemon.call("daemon/metrics")
    families = {family.name: family for family in prometheus(answer["text"])}
    assert answer["content_type"].startswith("text/plain; version=0.0.4")
    wanted = {m.name.removesuffix("_total"): "gauge" if m.type == "info" else m.type for m in METRICS}
    assert {name: family.type for name, family in families.items()} == wanted
    assert all(family.documentation for family in families.values())
    for metric in METRICS:
        labels = {frozenset(s.labels) - {"le"} for s in families[metric.name.removesuffix("_total")].samples}
        assert labels <= {frozenset(metric.labels)}, metric.name


def test_openmetrics_is_what_its_stricter_parser_reads(daemon: Harness) -> None:
    daemon.new().ask("hello")
    answer = daemon.call("daemon/metrics", format="openmetrics")
    assert answer["content_type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics(answer["text"])}
    assert families["clisup_build"].type == "info"
    assert families["clisup_turn_duration_seconds"].unit == "seconds"
    assert len(families) == len(METRICS)


def test_a_completed_turn_is_counted_with_its_tokens_cost_and_times(daemon: Harness) -> None:
    counted = Counted(daemon)
    session = daemon.new()
    session.ask("@usage 30 7\n@cost 0.5\n@bash true\nDone.")
    assert counted.by("clisup_prompts_total", delivery="delivered") == 1
    assert counted.by("clisup_turns_started_total", origin="prompt") == 1
    assert (
        counted.by("clisup_turns_total", backend="demo", outcome="completed") == counted.by("clisup_turns_total") == 1
    )
    assert counted.by("clisup_tokens_total", kind="input") == 30
    assert counted.by("clisup_tokens_total", kind="output") == 7
    assert counted.by("clisup_cost_usd_total") == pytest.approx(0.5)
    assert counted.by("clisup_tool_calls_total") == 1
    assert counted.by("clisup_processes_started_total") == 1
    assert counted.by("clisup_processes_ended_total", ended_by="cli") == 1
    for name in ("duration", "wait", "first_event", "process_start"):
        assert counted.by(f"clisup_turn_{name}_seconds_count", backend="demo") == 1, name
    events = session.events()
    own = [event for event in events if event["source"] == "daemon"]
    assert counted.by("clisup_journal_events_total", source="daemon") == len(own)
    assert counted.by("clisup_journal_events_total") == len(events)
    written = sum(path.stat().st_size for path in (session.dir / "journal").iterdir())
    heads = sum(len(path.read_bytes().splitlines(True)[0]) for path in (session.dir / "journal").iterdir())
    assert counted.by("clisup_journal_bytes_total") == written - heads
    assert counted.by("clisup_journal_sync_duration_seconds_count") >= 1


def test_a_failed_turn_is_counted_by_its_kind(daemon: Harness) -> None:
    counted = Counted(daemon)
    daemon.new().ask("@error authentication")
    daemon.new().ask("@die SEGV")
    assert counted.by("clisup_turns_total", outcome="failed") == counted.by("clisup_turns_total") == 2
    assert counted.by("clisup_turn_errors_total", kind="authentication") == 1
    assert counted.by("clisup_turn_errors_total", kind="crashed") == 1
    assert counted.by("clisup_process_signals_total", signal="SIGSEGV") == 1


def test_a_timed_out_turn_is_counted_with_the_watchdogs_phase(hasty: Harness) -> None:
    counted = Counted(hasty)
    hasty.new().ask("a word\n@orphan setsid 60\n@stall")
    assert counted.by("clisup_turns_total", outcome="timed_out") == counted.by("clisup_turns_total") == 1
    assert counted.by("clisup_turn_errors_total", kind="idle_timeout") == 1
    assert (
        counted.by("clisup_watchdog_firings_total", phase="model") == counted.by("clisup_watchdog_firings_total") == 1
    )
    assert counted.by("clisup_watchdog_warnings_total", phase="model") == 1
    assert counted.by("clisup_processes_ended_total", ended_by="watchdog") == 1
    assert counted.by("clisup_survivors_total", fate="killed") == 1


def test_an_interrupt_and_a_dropped_prompt_are_counted_and_the_gauges_follow(daemon: Harness) -> None:
    counted = Counted(daemon)
    session = daemon.new()
    running = session.prompt("@stall")
    queued = session.prompt("never")
    session.cli()
    assert counted.by("clisup_turns_running") == 1
    assert counted.by("clisup_turns_queued", backend="demo") == 1
    assert counted.by("clisup_sessions", backend="demo", state="running") == 1
    session.call("interrupt", turn_id=queued)
    session.call("interrupt", turn_id=running)
    assert counted.by("clisup_turns_total", outcome="interrupted") == counted.by("clisup_turns_total") == 2
    until(lambda: counted.by("clisup_turns_running") == counted.by("clisup_turns_queued") == 0)
    assert counted.by("clisup_sessions", backend="demo", state="idle") == 1
    assert counted.by("clisup_turn_wait_seconds_count") == 1


def test_requests_are_counted_by_method_and_error_and_nobody_makes_up_a_method(daemon: Harness) -> None:
    counted = Counted(daemon)
    daemon.call("ping")
    for method, params in (("session/get", {"session_id": "0d9c1c1e-0000-4000-8000-000000000000"}), ("made/up", {})):
        with pytest.raises(ClisupError):
            daemon.call(method, **params)
    with daemon.wire() as wire:
        wire.send(b"no json\n")
        wire.frame()
        wire.call("session/subscribe", session_id="*")
        assert counted.by("clisup_clients") == counted.by("clisup_subscriptions") == 1
    assert counted.by("clisup_requests_total", method="ping") == 1
    assert counted.by("clisup_request_errors_total", method="session/get", kind="session_not_found") == 1
    assert counted.by("clisup_request_errors_total", method="other", kind="method_not_found") == 1
    assert counted.by("clisup_refused_frames_total") == 1
    assert counted.by("clisup_connections_total") == 1
    until(lambda: counted.by("clisup_clients") == 0)


def test_the_daemon_tells_of_itself_and_its_disk(daemon: Harness) -> None:
    until(lambda: _sum(samples(daemon), "clisup_event_loop_lag_seconds_count", {}) >= 1)
    found = samples(daemon)
    status = daemon.call("daemon/status")["daemon"]
    assert _sum(found, "clisup_daemon_state", {"state": "ready"}) == 1 == _sum(found, "clisup_daemon_state", {})
    assert _sum(found, "clisup_storage_state", {"state": "ok"}) == 1 == _sum(found, "clisup_storage_state", {})
    assert _sum(found, "clisup_storage_free_bytes", {}) > 0
    assert _sum(found, "clisup_process_resident_memory_bytes", {}) == pytest.approx(status["rss_bytes"], rel=0.2)
    assert _sum(found, "clisup_process_cpu_seconds_total", {}) > 0
    assert _sum(found, "clisup_build_info", {"version": status["version"]}) == 1
    assert _sum(found, "clisup_turns_running_limit", {}) == status["max_running"]
    began = _sum(found, "clisup_start_time_seconds", {})
    assert began <= _sum(found, "clisup_exposition_timestamp_seconds", {}) < began + 3600


def monotone(before: Samples, after: Samples) -> list[str]:
    """Counters and buckets that went down, or away."""
    rising = {m.name for m in METRICS if m.type in ("counter", "histogram")}

    def rises(name: str) -> bool:
        return name in rising or re.sub(r"_(bucket|count|sum)$", "", name) in rising

    return [
        f"{name} {dict(labels)}: {value} -> {after.get((name, labels))}"
        for (name, labels), value in before.items()
        if rises(name) and after.get((name, labels), -1.0) < value
    ]


def test_counters_never_go_down_whatever_is_done(daemon: Harness) -> None:
    seen = [samples(daemon)]
    session = daemon.new()
    for prompt in ("hello", "@error server", "@noise\n@unknown", "@retry overloaded 2\nwell"):
        session.ask(prompt)
        seen.append(samples(daemon))
    session.call("close")
    seen.append(samples(daemon))
    session.call("delete")
    seen.append(samples(daemon))
    for before, after in pairwise(seen):
        assert not monotone(before, after)
    assert _sum(seen[-1], "clisup_turns_total", {}) == _sum(seen[0], "clisup_turns_total", {}) + 4


def test_a_turn_over_a_restart_is_counted_once_by_the_daemon_that_sees_its_end(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    turn = session.prompt(f"a\n@wait-file {daemon.root}/go\nb")
    session.cli()
    before = samples(daemon)
    assert _sum(before, "clisup_turns_started_total", {}) == 1 and _sum(before, "clisup_turns_total", {}) == 0
    daemon.restart()
    assert _sum(samples(daemon), "clisup_turns_adopted", {}) == 1
    (daemon.root / "go").touch()
    session.end_of(turn)
    after = samples(daemon)
    assert _sum(after, "clisup_turns_started_total", {}) == 0
    assert _sum(after, "clisup_turns_total", {"outcome": "completed"}) == 1
    assert _sum(after, "clisup_notices_total", {"code": "adopted"}) == 1
    assert _sum(after, "clisup_turn_first_event_seconds_count", {}) == 0
    assert _sum(after, "clisup_start_time_seconds", {}) > _sum(before, "clisup_start_time_seconds", {})
    assert _sum(after, "clisup_started_in_place", {}) == 0
    identity = daemon.identity()["instance_id"]
    daemon.call("daemon/restart")
    daemon.await_successor(identity)
    assert _sum(samples(daemon), "clisup_started_in_place", {}) == 1


def test_fifty_sessions_have_as_many_series_as_one(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_running": 8})
    daemon.new().ask("hello")
    daemon.call("session/list")
    samples(daemon)
    one = samples(daemon)
    with Wire(daemon.socket) as wire:
        sessions = [daemon.new(labels={"n": str(n)}, model=f"model-{n}") for n in range(50)]
        asked = [
            wire.post("session/prompt", session_id=s.id, prompt=f"hello {n}", wait=True) for n, s in enumerate(sessions)
        ]
        assert all(wire.answer(number)["outcome"] == "completed" for number in asked)
    fifty = samples(daemon)
    more = {key for key in fifty.keys() - one.keys() if key[0] != "clisup_prompts_total"}
    assert not more
    assert len(fifty) < 600
    assert _sum(fifty, "clisup_turns_total", {"outcome": "completed"}) == 51
    text = daemon.call("daemon/metrics")["text"]
    assert not any(session.id in text for session in sessions) and "model-7" not in text


def test_every_notice_and_every_end_of_a_process_that_the_daemon_knows_has_a_label_of_its_own() -> None:
    code = "".join(path.read_text() for path in (ROOT / "clisup").rglob("*.py") if "demo" not in path.parts)
    codes = set(re.findall(r"Notice\(\s*code=\"(\w+)\"", code))
    page = (ROOT / "docs" / "reference" / "events.md").read_text()
    rows = page.split("#### Codes of notices")[-1].split("\n## ")[0]
    told_codes = {
        code for row in re.findall(r"^\| (`.+?) \| ", rows, re.MULTILINE) for code in re.findall(r"`(\w+)`", row)
    }
    assert len(codes) > 10 and codes <= told_codes == set(NOTICES)
    (told,) = re.findall(r"^\| `ended_by` \| string \| (.+?) \|$", page, re.MULTILINE)
    named = re.findall(r"`(\w+)[:<>\w]*`", told) + re.findall(
        r"^\| `(\w+)` \| ", page.split("Why a live process was let go")[-1].split("##")[0], re.MULTILINE
    )
    assert set(named) - {"ended_by"} == set(ENDED_BY)

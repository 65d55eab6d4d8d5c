"""The bench's own parts, in small: what is said is what was recorded, the counts are right, the rules of the report hold.

No figure is looked at: a timed figure never fails a test.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import counts, growth, latency, memory, paced, recovery, report, run, start, throughput, turns
from tests.bench.bare import spoken
from tests.bench.figures import FAR, Figure, Target, far_off, figure, fit, missing
from tests.bench.flow import fanned_out, parse, through_daemon, through_relay, typed
from tests.bench.frames import REPEATED, write_deltas, write_huge, write_mix
from tests.bench.native_programs import build
from tests.bench.place import Gate, Sinks, children_of, cpu_of, memory_of, prompt_of
from tests.bench.plot import plot
from tests.bench.setting import Setting
from tests.bench.stolen import MOST, Stolen, Undisturbed
from tests.versions import VERSIONS

PARTS = {module.PART: module for module in (paced, counts, throughput, latency, memory, start, recovery, growth, turns)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc") and not os.environ.get("CLISUP_CI"):
        pytest.skip("there is no C compiler")
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def setting(tmp_path: Path, programs: Path) -> Setting:
    (tmp_path / "programs").symlink_to(programs)
    return Setting(tmp_path, "tiny", quiet=True)


# -- the frames


def test_the_mix_is_what_was_recorded_with_small_deltas_repeated(tmp_path: Path) -> None:
    recorded = {line for file in RECORDINGS.glob("*.jsonl") for line in file.read_bytes().splitlines()}
    mix = write_mix(tmp_path / "mix")
    lines = (mix.path / "body").read_bytes().splitlines()
    assert set(lines) <= recorded and (mix.lines, mix.bytes) == (len(lines), sum(len(line) + 1 for line in lines))
    assert max(lines.count(line) for line in lines) >= REPEATED and max(map(len, lines)) > 40_000
    assert {json.loads(line)["type"] for line in lines} >= {"stream_event", "assistant", "user", "system"}


RECORDINGS = Path(__file__).parents[1] / "recordings" / "claude" / VERSIONS["claude"]


def test_stamped_lines_have_room_for_the_time_and_differ_in_nothing_else(tmp_path: Path) -> None:
    plain, stamped = write_mix(tmp_path / "a"), write_mix(tmp_path / "b", stamped=True)
    assert plain.lines == stamped.lines
    assert (stamped.path / "body").read_bytes().count(b"@STAMP-0000000000000000") > 100
    assert b"@STAMP" in (write_deltas(tmp_path / "c").path / "body").read_bytes()
    assert write_huge(tmp_path / "d", 5_000).bytes > 5_000


# -- the programs


@pytest.mark.parametrize("count", [1, 843, 844, 5_000])
def test_the_fake_says_so_many_lines_of_the_body_and_a_first_and_a_last_one(setting: Setting, count: int) -> None:
    gate = Gate(setting.scratch / "gate")
    gate.open()
    prompt = prompt_of("flood", gate, setting.mix, count)
    said = subprocess.run([build("fakecli", setting.programs)], input=prompt.encode(), capture_output=True, check=True)
    first, *middle, last = said.stdout.splitlines()
    body = (setting.mix.path / "body").read_bytes().splitlines()
    assert middle == [body[number % len(body)] for number in range(count)]
    assert (json.loads(first)["subtype"], json.loads(last)["type"]) == ("init", "result")
    own, parent = gate.spent()
    assert own > 0 and parent >= 0
    gate.close()


def test_fakes_wait_at_the_gate_and_a_sink_counts_all_their_lines_and_their_ages(setting: Setting) -> None:
    gate = Gate(setting.scratch / "gate")
    fake, sink = build("fakecli", setting.programs), build("sink", setting.programs)
    prompt = prompt_of("pace", gate, setting.deltas, 50, 1000)
    with spoken(fake, prompt, 3, into_one=True) as pipes, Sinks(sink, [("-", "-", "0")], pipes[0]) as sinks:
        gate.open()
        seen = sinks.results()[0]
    assert (seen["lines"], seen["stamped"], len(seen["ages"])) == (3 * 52, 150, 1001)
    assert seen["ages"] == sorted(seen["ages"]) and seen["ages"][0] > 0
    gate.close()


def test_a_sink_that_follows_a_daemon_sees_each_turn_and_every_client_the_same(setting: Setting) -> None:
    with setting.place() as at:
        sessions = [at.session(), at.session()]
        one, three = through_daemon(at, sessions, setting.mix, 200), through_daemon(at, sessions, setting.mix, 200, 3)
    assert one.lines == three.lines == 200 and abs(one.events - three.events) <= 4
    assert three.deliveries == 3 * three.events and min(one.cpu, one.seconds, one.keepers) > 0


@pytest.mark.parametrize("sessions", [1, 40])
def test_the_relay_in_c_hands_on_every_line_and_ends_when_the_fakes_have(setting: Setting, sessions: int) -> None:
    gate, (ours, theirs) = Gate(setting.scratch / "gate"), socket.socketpair()
    fake, sink, relay = (build(name, setting.programs) for name in ("fakecli", "sink", "relay"))
    prompt = prompt_of("flood", gate, setting.deltas, 50)
    with spoken(fake, prompt, sessions) as pipes, Sinks(sink, [("-", "-", "0")], theirs) as sinks:
        process = subprocess.Popen([relay, *map(str, pipes)], stdout=ours, pass_fds=pipes)
        ours.close()
        theirs.close()
        gate.open()
        assert process.wait(30) == 0
        assert sinks.results()[0]["lines"] == 52 * sessions
    gate.close()


def test_the_relay_in_python_loses_nothing_and_parsing_reads_every_line(setting: Setting) -> None:
    flow = through_relay(setting.scratch, setting.programs, setting.mix, 3_000, 3)  # it counts for itself
    assert flow.lines == 3_000 and flow.cpu > 0
    assert parse(setting.mix, 1).lines % setting.mix.lines == 0


def test_lines_made_events_are_as_many_for_each_client(setting: Setting) -> None:
    flow = fanned_out(setting.programs, setting.mix, 1, 3)  # its clients count for themselves
    assert flow.lines == setting.mix.lines and flow.cpu > 0
    assert typed(setting.mix, 1).lines % setting.mix.lines == 0


def test_what_a_process_costs_and_holds_is_read_from_the_kernel() -> None:
    child = subprocess.Popen([sys.executable, "-c", "sum(range(3_000_000)); input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in children_of(os.getpid())
        while cpu_of(child.pid) < 0.02:
            assert child.poll() is None
        assert memory_of(child.pid)["Rss"] > 1_000
    finally:
        child.communicate(b"\n")


@pytest.mark.parametrize("part", ["paced", "latency", "memory", "start", "recovery", "growth"])
def test_each_part_gives_figures_of_its_own_in_its_smallest_form(setting: Setting, part: str) -> None:
    figures = PARTS[part].measure(setting)
    assert figures and {figure.part for figure in figures} == {part}
    assert len({figure.key for figure in figures}) == len(figures)
    assert all(figure.value is not None and math.isfinite(figure.value) for figure in figures)


def test_the_parts_of_the_report_are_those_that_there_are() -> None:
    assert tuple(PARTS) == report.PARTS and set(run.SHORT) <= set(report.PARTS)


# -- the rules


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, -0.25])
def test_the_fit_finds_the_exponent_of_a_power_and_no_residual(exponent: float) -> None:
    sizes = [10, 1_000, 100_000]
    found = fit(sizes, [7 * size**exponent for size in sizes])
    assert found.exponent == pytest.approx(exponent, abs=1e-9) and found.residual == pytest.approx(0, abs=1e-9)
    assert fit(sizes, [1, 2, 1]).residual > 0.3


def test_a_figure_is_the_median_of_its_rounds_and_its_ratio_that_of_the_rounds_ratios() -> None:
    found = figure("start", "a", "ms", [2, 9, 4], reference="b", against=[1, 3, 4])
    assert (found.value, found.reference_value, found.ratio) == (4, 3, 2) and (found.low, found.high) == (1, 3)
    alone = figure("start", "a", "ms", [2, 9, 4])
    assert (alone.ratio, alone.low, alone.high, alone.verdict) == (None, 2, 9, "")


@pytest.mark.parametrize(
    ("target", "found", "verdict"),
    [
        (Target("ratio", "less", 5, 2), 2.0, "moonshot"),
        (Target("ratio", "less", 5, 2), 5.0, "must"),
        (Target("ratio", "less", 5, 2), 5.1, "missed"),
        (Target("ratio", "more", 0.2, 0.5), 0.5, "moonshot"),
        (Target("ratio", "more", 0.2, 0.5), 0.3, "must"),
        (Target("ratio", "more", 0.2, 0.5), 0.1, "missed"),
    ],
)
def test_a_verdict_says_which_target_is_reached(target: Target, found: float, verdict: str) -> None:
    assert figure("start", "a", "ms", [found], against=[1], target=target).verdict == verdict


@pytest.mark.parametrize(
    ("better", "ratio", "fails"),
    [
        ("less", 2 * FAR, False),
        ("less", 2 * FAR + 0.1, True),
        ("more", 2 / FAR, False),
        ("more", 0.6, True),
        ("less", 0.1, False),
    ],
)
def test_only_what_is_three_times_worse_than_recorded_fails(better: str, ratio: float, fails: bool) -> None:
    recorded = replace(figure("start", "a", "ms", [2], against=[1]), better=better)  # type: ignore[arg-type]
    found = replace(recorded, ratio=ratio)
    assert bool(far_off(found, recorded.as_dict())) is fails
    assert bool(report.regressions([found], report.document([recorded], {}, "full"))) is fails


@pytest.mark.parametrize(("unit", "value", "fails"), [("calls", 109, False), ("calls", 112, True), ("ms", 900, False)])
def test_a_count_that_has_grown_by_more_than_a_tenth_fails(unit: str, value: float, fails: bool) -> None:
    before, now = figure("counts", "a turn", unit, [100]), figure("counts", "a turn", unit, [value])
    assert bool(report.regressions([now], report.document([before], {}, "full"))) is fails


def test_what_has_no_ratio_or_was_never_recorded_fails_nothing() -> None:
    found = figure("start", "a", "ms", [9], against=[1])
    assert far_off(found, None) is None and report.regressions([found], None) == {}
    assert far_off(figure("start", "a", "ms", [9]), found.as_dict()) is None


def test_the_short_form_fails_only_where_a_ratio_is_far_off_twice(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = figure("start", "a", "ms", [1], against=[1]), figure("start", "a", "ms", [4], against=[1])
    monkeypatch.setattr(run, "recorded", lambda: report.document([good], {}, "full"))
    for again, worse in ((good, False), (bad, True)):
        monkeypatch.setattr(start, "measure", lambda _setting, again=again: [again])
        assert run._far_worse([bad], setting) is worse
    assert "4.0 times worse" in capsys.readouterr().out
    assert run._far_worse([good], setting) is False


# -- rounds that the hypervisor disturbed


def rounds_of(*shares: float) -> Iterator[throughput.Flow]:
    return (throughput.Flow(number, 1.0, 1.0, stolen=share) for number, share in enumerate(shares))


def test_a_round_that_was_disturbed_is_measured_anew_until_one_was_not() -> None:
    rounds, undisturbed = rounds_of(MOST * 3, MOST * 2, MOST, 0.0), Undisturbed()
    assert undisturbed(next, rounds).lines == 2 and undisturbed(next, rounds).lines == 3
    assert undisturbed.facts() == {"median": MOST / 2, "most": MOST, "aside": 2}


def test_of_rounds_that_were_all_disturbed_the_least_disturbed_one_counts() -> None:
    rounds, undisturbed = rounds_of(0.3, 0.2, 0.4, 0.0), Undisturbed(tries=3)
    assert undisturbed(next, rounds).lines == 1
    assert undisturbed.facts() == {"median": 0.2, "most": 0.2, "aside": 2}


def test_where_there_is_no_patience_each_round_counts() -> None:
    rounds, undisturbed = rounds_of(0.3, 0.0), Undisturbed(0.0)
    assert undisturbed(next, rounds).stolen == 0.3 and undisturbed.facts()["aside"] == 0
    assert Undisturbed().facts() == {"median": 0.0, "most": 0.0, "aside": 0}


def test_what_was_stolen_is_a_share_of_all_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(5, 1_000), (15, 1_200), (15, 1_200)])
    monkeypatch.setattr("tests.bench.stolen._ticks", lambda: next(ticks))
    stolen = Stolen()
    assert stolen.share() == 0.05
    monkeypatch.setattr("tests.bench.stolen._ticks", lambda: (5, 1_000))
    assert stolen.share() == 0.0  # nothing has passed
    monkeypatch.undo()
    assert 0 <= Stolen().share() <= 1


# -- the report

FIGURES = [
    figure(
        "start",
        "a thing",
        "ms",
        [1, 2, 3],
        reference="another",
        against=[1, 1, 1],
        target=Target("ratio", "less", 5, 2),
    ),
    figure("memory", "held", "KiB", [12345.6]),
    missing("throughput", "beside it", "not installed"),
    figure("latency", "late", "us", [7], stolen=[0.004]),
    figure("throughput", "1 session x 16 clients: lines", "lines/s", [7]),
    figure("throughput", "1 session x 16 clients: daemon CPU per event", "us", [8]),
]
MACHINE = {"date": "2026-11-22", "processor": "a", "cores": 2, "memory_gib": 4, "kernel": "6", "python": "3.11",
           "clisup": "0", "packages": {"trio": "1"}, "load_before": 0.1, "load_after": 0.2, "seconds": 3}  # fmt: skip


def test_the_table_has_a_line_for_each_figure_with_reference_ratio_and_verdict() -> None:
    text = report.as_text(FIGURES)
    assert "2 ms" in text and "another: 1" in text and "2x" in text and "<= 5x (2x)" in text and "moonshot" in text
    assert "12,300 KiB" in text and "not installed" in text and "0.4 %" in text


def test_a_record_of_one_part_leaves_the_others(tmp_path: Path) -> None:
    before = report.document(FIGURES, MACHINE, "full")
    again: Figure = replace(FIGURES[1], name="held anew")
    kept = report.merged(before, report.document([again], MACHINE, "full"))
    assert list(kept["figures"]) == [
        "throughput: beside it", "throughput: 1 session x 16 clients: lines",
        "throughput: 1 session x 16 clients: daemon CPU per event", "latency: late", "memory: held anew", "start: a thing",
    ]  # fmt: skip
    report.write(tmp_path / "deep" / "a.json", kept)
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == kept


def test_the_table_of_figures_with_a_target_goes_between_the_marks_and_nowhere_else() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    made = report.splice(page, report.document(FIGURES, MACHINE, "full"))
    assert made.startswith("before\n") and made.endswith("after\n") and "old" not in made
    assert "| a thing | 2 ms | another: 1 | 2x | <= 5x (2x) | moonshot |" in made and "held" not in made
    assert "16 clients" not in made
    assert report.splice(made, report.document(FIGURES, MACHINE, "full")) == made


def test_the_page_has_exactly_the_tables_of_what_was_recorded() -> None:
    page = run.PAGE.read_text()
    assert page.count(report.BEGIN) == page.count(report.END) == 1
    assert report.splice(page, run.recorded()) == page, "run `make docs`"


def test_the_plot_has_a_line_for_each_series_of_the_paced_sessions_and_stands_as_it_was_recorded() -> None:
    crowds = [(10, 0.1), (1_000, 1.5)]
    rows = [
        figure("paced", f"{count:,} sessions with 20 lines/s and a client each: {what}", "cores", [value])
        for count, value in crowds
        for what in ("daemon and keepers", "daemon", "age of a line, p50", "age of a line, p99")
    ]
    drawn = plot({each.key: each.as_dict() for each in rows})
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(".//{*}path[@class='a']")) == len(root.findall(".//{*}path[@class='b']")) == 2
    assert plot({}).startswith("<svg")
    assert run.PLOT.read_text() == plot((run.recorded() or {})["figures"]), "run `make docs`"


def test_a_name_that_is_no_part_is_refused_and_says_which_there_are() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.bench.run", "speed"], capture_output=True, text=True, cwd=run.ROOT
    )
    assert said.returncode == 2 and "no such part; take of paced, counts" in said.stderr

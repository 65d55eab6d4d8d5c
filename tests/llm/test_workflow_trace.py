"""A workflow's trace on disk: durable line by line, one writer, and read whatever a crash left of its last line."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clisup.errors import UsageError, WorldError
from clisup.llm.testing import ScriptedModel
from clisup.llm.workflow import Loop, Stage, StageRun, Trace, read_trace
from clisup.llm.workflow import trace as trace_module
from clisup.llm.workflow.records import (
    StageCompleted,
    StageStarted,
    WorkflowCompleted,
    WorkflowStarted,
    read_line,
    to_line,
)

AT = "2026-11-22T12:00:00.000Z"
BEGUN = WorkflowStarted(at=AT, run_id="r", name="loop", stages=("a", "b"), task="x")


def stage(round_: int, name: str) -> list[Any]:
    return [
        StageStarted(at=AT, round=round_, stage=name, attempt=1),
        StageCompleted(at=AT, round=round_, stage=name, attempt=1, result=name * 3),
    ]


WHOLE = [BEGUN, *stage(1, "a"), *stage(1, "b"), WorkflowCompleted(at=AT, result="bbb", rounds=1)]
BYTES = b"".join(map(to_line, WHOLE))


class Watched:
    """`os` with an ear for what is done to files, and a mouth."""

    def __init__(self, heard: Callable[[str, Any], Any]) -> None:
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("write", "fsync", "ftruncate"):
            return real

        def call(*args: Any) -> Any:
            answer = self._heard(name, args)
            return real(*args) if answer is None else answer

        return call


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    with Trace.open(tmp_path / "t") as trace:
        assert trace.progress() is None
        for record in WHOLE:
            trace.append(record)
    with Trace.open(tmp_path / "t") as trace:
        assert trace.records == WHOLE
    progress = read_trace(tmp_path / "t")
    assert progress.rounds() == [{"a": "aaa", "b": "bbb"}]
    assert progress.ended == WHOLE[-1]


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    with Trace.open(tmp_path / "t"):
        assert stat.S_IMODE((tmp_path / "t").stat().st_mode) == 0o600


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, len(BYTES)))
def test_wherever_a_crash_cut_it_the_whole_lines_are_there_and_it_goes_on(tmp_path: Path, cut: int) -> None:
    file = tmp_path / f"t{cut}"
    file.write_bytes(BYTES[:cut])
    whole = BYTES[:cut].count(b"\n")
    with Trace.open(file) as trace:
        assert trace.records == WHOLE[:whole]
        for record in WHOLE[whole:]:
            trace.append(record)
    assert file.read_bytes() == BYTES


def test_a_last_line_that_is_no_record_is_torn_too(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_bytes(BYTES + b"\0" * 100 + b"\n")
    assert len(read_trace(file).completed) == 2
    Trace.open(file).close()
    assert file.read_bytes() == BYTES


@pytest.mark.parametrize("text", [b"my diary\n", b"my diary", b'{"type":"other"}\n', b"[1]\n[2]\n", b'{"a":1}'])
def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "t"
    file.write_bytes(text)

    with pytest.raises(UsageError, match="not a trace of a workflow: line 1 is not a record"):
        Trace.open(file)
    assert file.read_bytes() == text


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    lines = BYTES.splitlines(keepends=True)
    (tmp_path / "t").write_bytes(b"".join([lines[0], b"{broken\n", *lines[1:]]))
    with pytest.raises(UsageError, match="line 2 is not a record"):
        Trace.open(tmp_path / "t")


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (WHOLE[1:], "it does not begin as a trace"),
        ([BEGUN, BEGUN], "it begins twice"),
        ([BEGUN, *stage(1, "b")], "round 1, stage b stands where round 1, stage a should"),
        ([BEGUN, *stage(1, "a"), *stage(2, "b")], "round 2, stage b stands where round 1, stage b should"),
        ([BEGUN.model_copy(update={"version": 9})], "its version is 9, and this clisup reads 1"),
        ([BEGUN.model_copy(update={"stages": ()})], "it names no stages"),
    ],
)
def test_lines_that_do_not_fit_together_are_refused(tmp_path: Path, records: list[Any], why: str) -> None:
    (tmp_path / "t").write_bytes(b"".join(map(to_line, records)))
    with pytest.raises(UsageError, match=why):
        read_trace(tmp_path / "t")


def test_types_and_fields_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    lines = BYTES.splitlines(keepends=True)
    later = b'{"type":"stage_dreamt","at":"x","of":"sheep"}\n'
    more = lines[0].replace(b'"at"', b'"colour":"red","at"')
    (tmp_path / "t").write_bytes(b"".join([more, later, *lines[1:]]))
    assert len(read_trace(tmp_path / "t").completed) == 2
    assert read_line(later) is None


def test_no_file_and_no_permission_say_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_trace(tmp_path / "t")
    with pytest.raises(WorldError, match=r"failed to open .*: no such file or directory"):
        Trace.open(tmp_path / "nowhere" / "t")
    with pytest.raises(WorldError, match="is a directory"):
        Trace.open(tmp_path)


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    with Trace.open(tmp_path / "t"):
        with pytest.raises(UsageError, match="is running already"):
            Trace.open(tmp_path / "t")
        assert trace_module.is_being_written(tmp_path / "t")
    assert not trace_module.is_being_written(tmp_path / "t")


def test_a_full_disk_leaves_nothing_of_the_line_and_ends_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False

    def heard(name: str, args: Any) -> Any:
        if name != "write" or not full:
            return None
        if os.fstat(args[0]).st_size == len(to_line(BEGUN)):
            return os.write(args[0], args[1][:10])  # there was room for so much
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace_module, "os", Watched(heard))
    with Trace.open(tmp_path / "t") as trace:
        trace.append(BEGUN)
        full = True
        with pytest.raises(WorldError, match="no space left on device") as caught:
            trace.append(WHOLE[1])
        assert caught.value.kind == "storage_failed"
        full = False
        with pytest.raises(WorldError, match="after a failed one"):
            trace.append(WHOLE[1])
        assert trace.records == [BEGUN]
    assert (tmp_path / "t").read_bytes() == to_line(BEGUN)


def test_a_record_without_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MAX_RECORD_BYTES", 300)
    with Trace.open(tmp_path / "t") as trace:
        trace.append(BEGUN)
        with pytest.raises(UsageError, match="the limit is 300"):
            trace.append(BEGUN.model_copy(update={"task": "x" * 300}))
        trace.append(WHOLE[1])


async def test_each_record_is_synced_before_the_next_stage_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def heard(name: str, args: Any) -> None:
        if name == "write":
            record = read_line(bytes(args[1]))
            seen.append(f"write {record.type} {getattr(record, 'stage', '')}".strip() if record else "")
        elif name == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode):
            seen.append("sync")

    def named(name: str) -> Stage:
        async def run(run: StageRun) -> None:
            seen.append(f"run {name}")

        return Stage(name, run)

    monkeypatch.setattr(trace_module, "os", Watched(heard))
    await Loop(named("a"), named("b")).run(
        "x", model=ScriptedModel(), trace=tmp_path / "t", on_stage=lambda _: seen.append("told")
    )
    assert seen == [
        "write workflow_started",
        "sync",
        *("write stage_started a", "sync", "run a", "write stage_completed a", "sync", "told"),
        *("write stage_started b", "sync", "run b", "write stage_completed b", "sync", "told"),
        "write workflow_completed",
        "sync",
    ]

"""`clisup workflow show`: where a workflow stands, in words and as JSON, also while it runs and after it died."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.llm.workflow import Trace
from clisup.llm.workflow.records import (
    Failure,
    Record,
    SpentRecord,
    StageCompleted,
    StageFailed,
    StageStarted,
    StepCompleted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
)
from clisup.model.usage import Usage

AT = "2026-11-22T12:00:00.000Z"
KNOWN = SpentRecord(
    answers=2,
    usage=Usage(input_tokens=1000, output_tokens=500, source="reported"),
    cost_usd=0.25,
    cost_source="estimated",
    wall_s=62.0,
)
UNKNOWN = SpentRecord(answers=1, unknown_tokens=1, unknown_usd=1)
BEGUN: list[Record] = [
    WorkflowStarted(at=AT, run_id="r1", name="research", stages=("think", "do"), task={"of": "boats"}),
    StageStarted(at=AT, round=1, stage="think", attempt=1),
    StageCompleted(
        at=AT, round=1, stage="think", attempt=1, result="Thoughts.\nMany.\x1b[31m", spent=KNOWN, session_id="s1"
    ),
    StageStarted(at=AT, round=1, stage="do", attempt=1),
]
FAILED = StageFailed(
    at=AT, round=1, stage="do", attempt=1, error=Failure(kind="rate_limit", message="too many"), spent=UNKNOWN
)
ENDED: list[Record] = [
    *BEGUN,
    FAILED,
    StageStarted(at=AT, round=1, stage="do", attempt=2),
    StageCompleted(at=AT, round=1, stage="do", attempt=2, result={"boats": 3}, spent=SpentRecord()),
    WorkflowCompleted(at=AT, result={"boats": 3}, rounds=1),
]


@pytest.fixture
def show(clisup: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """What is shown of a trace of these records."""

    def show(records: list[Record], *options: str) -> Any:
        file = tmp_path / "t.jsonl"
        file.unlink(missing_ok=True)
        with Trace.open(file) as trace:
            for record in records:
                trace.append(record)
        ran = clisup("workflow", "show", str(file), *options)
        assert ran.code == 0, ran.err
        return json.loads(ran.out) if "--json" in options else ran.out

    return show


def test_each_attempt_at_a_stage_is_a_line_with_what_it_took(show: Callable[..., Any]) -> None:
    lines = show(ENDED).splitlines()
    assert lines[0] == "research: done"
    assert lines[2] == 'task: {"of": "boats"}'
    assert [line.split() for line in lines[4:8]] == [
        ["ROUND", "STAGE", "TRY", "STATE", "TOOK", "TOKENS", "COST", "RESULT"],
        [
            "1",
            "think",
            "1",
            "completed",
            "1",
            "min",
            "1.5k",
            "~$0.2500",
            "Thoughts.",
            "Many.\N{REPLACEMENT CHARACTER}[31m",
        ],
        ["1", "do", "1", "rate_limit", "0.0", "s", "?", "?", "too", "many"],
        ["1", "do", "2", "completed", "0.0", "s", "-", "-", '{"boats":', "3}"],
    ]
    assert lines[-2:] == [
        "in all: ~$0.2500, 1500 tokens, 1 iteration, 62.0 s, 1 of 3 answers not wholly known",
        'result: {"boats": 3}',
    ]


def test_json_has_all_but_what_was_said(show: Callable[..., Any]) -> None:
    shown = show(ENDED, "--json")
    assert (shown["name"], shown["run_id"], shown["state"], shown["result"]) == ("research", "r1", "done", {"boats": 3})
    assert [(one["round"], one["stage"], one["attempt"], one["state"]) for one in shown["stages"]] == [
        (1, "think", 1, "completed"),
        (1, "do", 1, "failed"),
        (1, "do", 2, "completed"),
    ]
    assert shown["stages"][0]["session_id"] == "s1"
    assert shown["stages"][1]["error"] == {"kind": "rate_limit", "message": "too many"}
    assert all("messages" not in one for one in shown["stages"])
    assert shown["spent"] == {
        "answers": 3,
        "tokens": 1500,
        "usd": 0.25,
        "cost_source": "estimated",
        "unknown_tokens": 1,
        "unknown_usd": 1,
        "wall_s": 62.0,
    }


@pytest.mark.parametrize(
    ("records", "state", "words"),
    [
        (BEGUN, "interrupted", "research: interrupted: its process has ended"),
        ([*BEGUN, FAILED], "failed", "research: failed"),
        (
            [*BEGUN, FAILED, WorkflowPaused(at=AT, reason="budget", message="1 of 1 usd")],
            "budget",
            "research: paused: a budget is used up",
        ),
    ],
)
def test_what_stands_says_why_and_how_to_go_on(
    show: Callable[..., Any], records: list[Record], state: str, words: str
) -> None:
    out = show(records)
    assert out.startswith(words + "\n")
    assert "next: run the program again with the same trace" in out
    assert ("why: 1 of 1 usd" in out) == (state == "budget")
    assert show(records, "--json")["state"] == state


def test_while_it_runs_it_says_so(clisup: Callable[..., Any], tmp_path: Path) -> None:
    with Trace.open(tmp_path / "t") as trace:
        for record in BEGUN:
            trace.append(record)
        ran = clisup("workflow", "show", str(tmp_path / "t"))
    assert ran.out.startswith("research: running\n")
    assert ran.out.splitlines()[6].split() == ["1", "do", "1", "begun", "-", "-", "-", "-"]
    assert "next:" not in ran.out


def test_the_steps_of_a_stage_that_is_not_done_are_named(show: Callable[..., Any]) -> None:
    steps = [StepCompleted(at=AT, round=1, stage="do", attempt=1, step=name, result=None) for name in ("fetch", "sort")]
    assert "finished steps of do: fetch, sort\n" in show([*BEGUN, *steps])
    assert show([*BEGUN, *steps], "--json")["steps"] == ["fetch", "sort"]
    assert show(ENDED, "--json")["steps"] == []


def test_what_is_no_trace_is_a_usage_error(clisup: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "t").write_text("my diary\n")
    for file, why in (("t", "line 1 is not a record"), ("nowhere", "no such file")):
        ran = clisup("workflow", "show", str(tmp_path / file))
        assert ran.code == 2
        assert why in ran.err


def test_the_group_shows_its_help(clisup: Callable[..., Any]) -> None:
    assert "clisup workflow show research.jsonl" in clisup("workflow").out

"""`clisup workflow`: progress of the model layer's workflows, from their traces."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from clisup.cli.options import HelpGroup, json_option
from clisup.cli.views.terminal import Ink, clip, cost, duration, plain, print_table, tokens
from clisup.client.raw import JsonObject

if TYPE_CHECKING:
    from clisup.llm.workflow.trace import Progress

__all__ = ["workflow"]

_STATES = {
    "done": "done",
    "running": "running",
    "budget": "paused: a budget is used up",
    "max_rounds": "paused: its rounds are used up",
    "failed": "failed",
    "interrupted": "interrupted: its process has ended",
}
_NEXT = "run the program again with the same trace: it resumes there"


@click.group("workflow", cls=HelpGroup)
def workflow() -> None:
    """Show workflows of the model layer.

    A program runs a workflow (clisup.llm: Loop, ThinkPlanDoReflect) and writes a trace. After a crash, the program resumes
    from the trace.

    \b
    Example:
      clisup workflow show research.jsonl
    """


@workflow.command("show")
@click.argument("file", type=click.Path())
@json_option("Print one JSON object.")
def show(file: str, as_json: bool) -> int:
    """Show the progress of the workflow with the trace FILE.

    Each attempt at a stage has a line: its end, its duration, its tokens and cost (~ for an estimate, ? if a part is
    unknown), and the beginning of its result. The workflow may be running; no daemon is needed. FILE holds all messages.

    \b
    Example:
      clisup workflow show research.jsonl
      clisup workflow show research.jsonl --json | jq -r .result
    """
    from clisup.llm.workflow.trace import is_being_written, read_trace

    progress = read_trace(file)
    running = is_being_written(file)
    state = "running" if running else "interrupted" if progress.state == "running" else progress.state
    if as_json:
        print(json.dumps(_as_json(file, progress, state), ensure_ascii=False))
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    _print(progress, state, Ink())
    return 0


def _print(progress: Progress, state: str, ink: Ink) -> None:
    started = progress.started
    print(ink("bold", plain(f"{clip(started.name)}: {_STATES[state]}")))
    print(plain(f"run {started.run_id}, begun {started.at}"))
    print(f"task: {clip(_text(started.task), 200)}\n")
    head = ["ROUND", "STAGE", "TRY", "STATE", "TOOK", "TOKENS", "COST", "RESULT"]
    print_table(head, [_row(stage) for stage in _stages(progress)])
    print(f"\nin all: {plain(str(progress.spent))}")
    if progress.steps:
        print(f"finished steps of {plain(progress.steps[-1].stage)}: {clip(', '.join(_steps(progress)), 200)}")
    if progress.ended is not None:
        print(f"result: {clip(_text(progress.ended.result), 400)}")
    elif state != "running":
        if progress.paused and progress.paused.message:
            print(f"why: {clip(progress.paused.message, 400)}")
        print(f"next: {_NEXT}")


def _steps(progress: Progress) -> list[str]:
    return [step.step for step in progress.steps]


def _stages(progress: Progress) -> list[JsonObject]:
    stages = []
    for entry in progress.in_order():
        stage = entry.model_dump(mode="json", exclude={"messages"})
        stage["state"] = stage.pop("type").removeprefix("stage_").replace("started", "begun")
        stages.append(stage)
    return stages


def _row(stage: JsonObject) -> list[str]:
    spent = stage.get("spent")
    result = stage["error"]["message"] if "error" in stage else _text(stage.get("result", ""))
    return [
        str(stage["round"]),
        stage["stage"],
        str(stage["attempt"]),
        stage["error"]["kind"] if "error" in stage else stage["state"],
        *(_spent(spent) if spent else ["", "", ""]),
        clip(result, 80),
    ]


def _spent(spent: JsonObject) -> list[str]:
    """Return duration, tokens and cost; a `?` marks a sum with unknown parts."""
    used = tokens(spent["usage"]).removeprefix("-")
    sign = "~" if spent["cost_source"] == "estimated" else ""
    return [
        duration(spent["wall_s"]),
        used + "?" * bool(spent["unknown_tokens"]),
        (sign + cost(spent["cost_usd"]) if spent["cost_usd"] is not None else "") + "?" * bool(spent["unknown_usd"]),
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_json(file: str, progress: Progress, state: str) -> JsonObject:
    started, spent = progress.started, progress.spent
    return {
        "file": file,
        "run_id": started.run_id,
        "name": started.name,
        "begun_at": started.at,
        "state": state,
        "task": started.task,
        "stages": _stages(progress),
        "steps": _steps(progress),
        "rounds": progress.rounds(),
        "spent": {
            "answers": spent.answers,
            "tokens": spent.tokens,
            "usd": None if spent.cost is None else spent.usd,
            "cost_source": None if spent.cost is None else spent.cost.source,
            "unknown_tokens": spent.unknown_tokens,
            "unknown_usd": spent.unknown_usd,
            "wall_s": round(spent.wall_s, 3),
        },
        "why": progress.paused.message if progress.paused else None,
        "result": None if progress.ended is None else progress.ended.result,
    }

"""`clisup workflow`: what the model layer's workflows have done, by their traces."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from clisup.cli.command_group import CommandGroup
from clisup.cli.views.terminal import Ink, clip, cost, count, duration, plain, table

if TYPE_CHECKING:
    from clisup.llm.workflow.trace import Progress

__all__ = ["command"]

_STATES = {
    "done": "done",
    "running": "running",
    "budget": "paused: a budget is used up",
    "max_rounds": "paused: its rounds are over",
    "failed": "failed",
    "interrupted": "interrupted: its process is gone",
}
_NEXT = "run the program again with the same trace: it goes on where this ends"


@click.group("workflow", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at workflows of the model layer.

    A program runs them (clisup.llm: Loop, ThinkPlanDoReflect), and writes a trace from which it goes on after a crash.

    \b
    Example:
      clisup workflow show research.jsonl
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@command.command("show")
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(file: str, as_json: bool) -> int:
    """Show where the workflow of the trace FILE stands.

    One line for each attempt at a stage: how it ended, how long it took, its tokens and cost (~ for an estimate, ? where some of it is
    not known), and the beginning of its result. It may be running; no daemon is needed. The file itself has all that was said.

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
    print(_in_words(progress, state, Ink()))
    return 0


def _in_words(progress: Progress, state: str, ink: Ink) -> str:
    started = progress.started
    lines = [
        ink("bold", plain(f"{clip(started.name)}: {_STATES[state]}")),
        f"run {started.run_id}, begun {started.at}",
        f"task: {clip(_text(started.task), 200)}",
        "",
        table(
            ["ROUND", "STAGE", "TRY", "STATE", "TOOK", "TOKENS", "COST", "RESULT"],
            [_row(one) for one in _stages(progress)],
        ),
        "",
        f"in all: {plain(str(progress.spent))}",
    ]
    if progress.steps:
        lines.append(
            f"steps of {plain(progress.steps[-1].stage)} that are done: {clip(', '.join(_steps(progress)), 200)}"
        )
    if progress.ended is not None:
        lines.append(f"result: {clip(_text(progress.ended.result), 400)}")
    elif state != "running":
        why = progress.paused.message if progress.paused else ""
        lines += [f"why: {clip(why, 400)}"] if why else []
        lines.append(f"next: {_NEXT}")
    return "\n".join(lines)


def _steps(progress: Progress) -> list[str]:
    return [one.step for one in progress.steps]


def _stages(progress: Progress) -> list[dict[str, Any]]:
    stages = []
    for one in progress.in_order():
        said = one.model_dump(mode="json", exclude={"messages"})
        said["state"] = said.pop("type").removeprefix("stage_").replace("started", "begun")
        stages.append(said)
    return stages


def _row(stage: dict[str, Any]) -> list[str]:
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


def _spent(spent: dict[str, Any]) -> list[str]:
    """How long, tokens and cost; `?` behind what is only the known part."""
    usage = spent["usage"]
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    known = [usage[name] for name in names if usage[name] is not None]
    sign = "~" if spent["cost_source"] == "estimated" else ""
    return [
        duration(spent["wall_s"]),
        (count(sum(known)) if known else "") + "?" * bool(spent["unknown_tokens"]),
        (sign + cost(spent["cost_usd"]) if spent["cost_usd"] is not None else "") + "?" * bool(spent["unknown_usd"]),
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_json(file: str, progress: Progress, state: str) -> dict[str, Any]:
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

"""Run as a program: a think-plan-do-reflect cycle on the demo backend, whose `do` waits for a file."""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from clisup.llm.budget import Budget
from clisup.llm.models import resolve
from clisup.llm.workflow import ThinkPlanDoReflect


async def main(directory: Path) -> None:
    workflow = ThinkPlanDoReflect(
        think="Think of the boat.\n@cost 0.25",
        plan='Plan.\n@structured {"steps": ["one", "two"]}',
        do=f"@recall\n@touch {directory}/begun\n@wait-file {directory}/go\nBuilt it.",
        reflect='@structured {"done": true, "answer": "a boat", "lesson": ""}',
    )
    model = resolve("demo", cwd=str(directory), keep=True)
    result = await workflow.run("Build a boat.", model=model, budget=Budget(usd=9.0), trace=directory / "trace.jsonl")
    print(result.outcome, result.result, len(result.rounds))


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))

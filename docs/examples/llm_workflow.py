"""Write until it is short enough: a loop of a stage that asks and one that checks, which goes on after a crash where it was.

    python llm_workflow.py claude/haiku work.jsonl 12 "Say what a daemon is."

Kill it at any moment (kill -9) and start it again with the same words: no answer that is in work.jsonl is asked for again.
`clisup workflow show work.jsonl` shows where it stands.
"""

import sys

import trio

from clisup.llm import Budget, Loop, Stage, StageDone, StageRun, resolve


async def write(run: StageRun) -> str:
    """The first round asks, each one after it says what was wrong: it is one conversation."""
    if not run.rounds:
        return (await run.ask(f"In at most {run.task['words']} words, and nothing else:\n{run.task['task']}")).text
    return (await run.ask(f"That were {run.rounds[-1]['check']} words. Say it in fewer:\n{run.task['task']}")).text


async def check(run: StageRun) -> int:
    """No model is needed to count."""
    return len(run.results["write"].split())


def show(done: StageDone) -> None:
    how = "from the trace" if done.replayed else f"answers of the model: {done.record.spent.answers}"
    print(f"round {done.record.round}, {done.record.stage}: {how}")


async def main(model: str, trace: str, words: int, task: str) -> int:
    loop = Loop(
        Stage("write", write),
        Stage("check", check),
        max_rounds=5,
        until=lambda rounds: rounds[-1]["check"] <= words,
        result=lambda rounds: rounds[-1]["write"],
        name="shorten",
    )
    result = await loop.run(
        {"task": task, "words": words}, model=resolve(model), budget=Budget(usd=1.0), trace=trace, on_stage=show
    )
    print(f"{result.outcome} ({result.spent}):\n{result.result}")
    return 0 if result.outcome == "done" else 1


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))

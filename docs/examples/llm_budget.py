"""Ask the same of many files, side by side, within one budget for all of them.

    python llm_budget.py claude/haiku 0.50 "Sum it up in a sentence:" *.md

Before each call the budget is asked, after it the cost is counted. What a call may still cost is what the daemon holds its session to, so
one long answer cannot eat all of it either.
"""

import sys

import trio

from clisup.llm import Budget, BudgetExhausted, Predict, Signature, resolve, signature, using

AT_ONCE = 4


async def main(model: str, usd: float, question: str, files: list[str]) -> int:
    budget = Budget(usd=usd, iterations=2 * len(files), wall_s=3600, name="the budget of the files")
    ask: Predict[Signature] = Predict(signature("text -> answer", question), repairs=1)
    limiter = trio.CapacityLimiter(AT_ONCE)
    left_out: list[str] = []

    async def one(file: str) -> None:
        async with limiter:
            try:
                found = await ask.run(text=await trio.Path(file).read_text())
            except BudgetExhausted as error:
                print(f"{file}: {error}", file=sys.stderr)
                left_out.append(file)
            else:
                print(f"{file}: {found.value.model_dump()['answer']}")

    with using(resolve(model), budget=budget):
        async with trio.open_nursery() as nursery:
            for file in files:
                nursery.start_soon(one, file)
    print(f"used: {budget.spent}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(trio.run(main, sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4:]))

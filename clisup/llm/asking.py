"""One prompt to one chat, held to budgets: refused before, cut short where the seconds are over, settled after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import trio

from clisup.llm.budget import Budget, Reservation
from clisup.llm.chat import Chat, Completion, SessionBudget
from clisup.llm.failures import BackendUnavailable, BudgetExhausted, DaemonUnavailable, Failed, Unsupported
from clisup.llm.messages import Prompt
from clisup.llm.streams import stream_of

__all__ = ["admit", "ask", "distinct"]

_NEVER_ASKED = (BackendUnavailable, DaemonUnavailable, Unsupported)
"""Where nothing was heard before it, such a refusal came before the prompt did: it took nothing."""


def distinct(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """Without those that another one of them counts for already: a sub-budget charges all above it."""
    above = {id(higher) for budget in budgets for higher in budget.above()}
    kept = {id(budget): budget for budget in budgets if id(budget) not in above}
    return tuple(kept.values())


def admit(budgets: Sequence[Budget], *, iterations: int = 1) -> SessionBudget | None:
    """What is left for a session to be held to; None: no limit. Raises `BudgetExhausted` where nothing is, and counts nothing."""
    for budget in budgets:
        budget.check(iterations=iterations)
    held = [budget.session_budget() for budget in budgets]
    if not any(one.to_wire() for one in held):
        return None
    return SessionBudget(
        usd=min((one.usd for one in held if one.usd is not None), default=None),
        tokens=min((one.tokens for one in held if one.tokens is not None), default=None),
        wall_s=min((one.wall_s for one in held if one.wall_s is not None), default=None),
    )


async def ask(
    chat: Chat, prompt: Prompt, *, budgets: Sequence[Budget] = (), output_schema: Mapping[str, Any] | None = None
) -> Completion:
    """The whole answer. Raises `BudgetExhausted` before, or when a limit of `wall_s` passes in the middle; and `LLMError`s."""
    with ExitStack() as stack:
        calls = [stack.enter_context(call) for call in _reserved(budgets)]
        completion = await _within(chat, prompt, output_schema, calls)
        for call in calls:
            call.settle(completion)
        return completion


def _reserved(budgets: Sequence[Budget]) -> list[Reservation]:
    """Of all of them or of none: where one refuses, nothing was asked, and the others have counted nothing."""
    calls: list[Reservation] = []
    try:
        calls.extend(budget.reserve() for budget in budgets)  # those before a refusal are in it
    except BudgetExhausted:
        for call in calls:
            call.release()
        raise
    return calls


async def _within(
    chat: Chat, prompt: Prompt, output_schema: Mapping[str, Any] | None, calls: Sequence[Reservation]
) -> Completion:
    walls = [call.left.wall_s for call in calls]
    wall_s = min((wall for wall in walls if wall is not None), default=float("inf"))
    completion, heard = None, False
    with trio.move_on_after(wall_s):
        try:
            async with stream_of(chat, prompt, output_schema=output_schema) as events:
                async for _ in events:
                    heard = True
                completion = events.completion
        except _NEVER_ASKED as error:
            if not heard and not error.side_effects:
                for call in calls:
                    call.release()
            raise
    if completion is not None:
        return completion
    if wall_s < float("inf"):
        raise BudgetExhausted(
            f"the answer was cut short, because the budget's seconds were over ({wall_s:.6g} were left when it began)",
            kind="budget_exhausted",
            hint="give it more seconds, or ask for less",
            side_effects=heard,
            which="wall_s",
        )
    raise Failed("the answer ended without a completion", kind="crashed", side_effects=heard)

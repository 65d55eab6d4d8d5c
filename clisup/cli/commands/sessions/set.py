"""`clisup set`."""

from __future__ import annotations

from typing import Any

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.parameters import MAX_COUNT, MAX_SECONDS, MAX_USD, limit, utf8
from clisup.cli.status.budget_words import budget_words
from clisup.client.sync import Client

__all__ = ["command"]

_LIMITS = ("usd", "tokens", "turns", "wall_s")


@click.command("set")
@click.argument("session")
@click.option("--model", metavar="MODEL", callback=utf8("name the model"), help="The model from here on.")
@click.option(
    "--permission-mode",
    metavar="MODE",
    callback=utf8("name the permission mode"),
    help="What the CLI may do unasked from here on, in its own words: acceptEdits, plan, ...",
)
@click.option(
    "--budget-usd", type=float, metavar="USD", callback=limit(MAX_USD), help="What all its turns together may cost."
)
@click.option(
    "--budget-tokens",
    type=int,
    metavar="N",
    callback=limit(MAX_COUNT),
    help="How many tokens they may use, input and output.",
)
@click.option("--budget-turns", type=int, metavar="N", callback=limit(MAX_COUNT), help="How many turns it may have.")
@click.option("--budget-wall-s", type=float, metavar="SECONDS", callback=limit(MAX_SECONDS),
              help="How long its turns may take together.")  # fmt: skip
@click.option("--no-budget", is_flag=True, help="Take all limits away.")
def command(session: str, no_budget: bool, **wanted: Any) -> int:
    """Change the model, the permission mode or the budget of SESSION.

    A live process takes model and mode up at once, also in the middle of a turn; else they hold from the next turn on. A budget
    holds at once, and what was used stays used: limits that are not named stay as they are.

    \b
    Example:
      clisup set 3f2a --model opus
      clisup set 3f2a --permission-mode plan
      clisup set 3f2a --budget-usd 5
    """
    # The mode first: of the two it is the one that a backend refuses.
    given = {name: value for name in ("permission_mode", "model") if (value := wanted[name]) is not None}
    limits = {name: value for name in _LIMITS if (value := wanted[f"budget_{name}"]) is not None}
    if not given and not limits and not no_budget:
        raise usage("cannot set nothing", hint="give --model, --permission-mode or a --budget-... option")
    if limits and no_budget:
        raise usage("cannot both set limits and take them away", hint="leave out --no-budget")
    if (empty := next((name for name, value in given.items() if not value), None)) is not None:
        raise usage(
            f"cannot set an empty {empty.replace('_', ' ')}", hint="leave the option out: what is set stays as it is"
        )
    with Client.connect(name="clisup-set") as client:
        session_id = find_session(client, session)
        for name, value in given.items():
            answer = client.call(f"session/set_{name}", session_id=session_id, **{name: value})
            when = {"now": "from now on", "next_turn": "from the next turn on"}[answer["applied"]]
            print(f"{name.replace('_', ' ')} {value}: {when}")
        if limits or no_budget:
            before = client.call("session/get", session_id=session_id).get("budget") or {"limit": {}}
            budget = {} if no_budget else {**before["limit"], **limits}
            answer = client.call("session/set_budget", session_id=session_id, budget=budget)
            print(f"budget: {budget_words(answer['budget']) or 'none'}")
    return 0

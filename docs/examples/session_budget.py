"""Work through a list of prompts until the session's budget is used up; raise it once, then stop.

    python session_budget.py BACKEND TOKENS PROMPT...

The daemon holds the session to its budget, also where this program dies: `clisup status --why SESSION` shows what is left.
"""

from __future__ import annotations

import os
import sys

from clisup.client.sync import Client
from clisup.errors import ClisupError


def main(backend: str, tokens: int, prompts: list[str]) -> int:
    with Client.connect() as client, client.open(backend, os.getcwd(), budget={"tokens": tokens}) as session:
        raised = False
        for prompt in prompts:
            try:
                turn = session.prompt(prompt)
            except ClisupError as error:
                if error.kind != "budget_exhausted" or raised:
                    raise
                print(f"{error.data['used']} of {error.data['limit']} {error.data['which']} used: twice as many, once")
                session.set_budget(tokens=2 * tokens)
                raised = True
                turn = session.prompt(prompt)
            if turn.error and turn.error["kind"] == "budget":
                print(f"ended in the middle: {turn.error['message']}")
                continue
            print(f"{turn.text} ({turn.usage.total_tokens} tokens)")
        budget = session.info().budget
        print(f"in all: {budget['used']['tokens'] if budget else 0} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))

"""Sort a ticket: a question to a model as a type, and the answer as a value that mypy knows.

    python llm_signatures.py claude/haiku "The export button does nothing since Monday."

The demo backend answers with what a line of the ticket tells it to:

    python llm_signatures.py demo 'It burns.
    @structured {"reasoning": "Fire.", "kind": "bug", "urgency": 5, "team": "hardware", "reply": "Step back."}'
"""

import sys
from typing import Literal

import trio

from clisup.llm import ChainOfThought, InputField, Module, OutputField, Predict, Signature, resolve, using


class Triage(Signature):
    """Say of which kind a support ticket is, and how urgent."""

    ticket: str = InputField(description="what the customer wrote")
    kind: Literal["bug", "question", "praise"] = OutputField()
    urgency: int = OutputField(description="5: somebody has to be woken", ge=1, le=5)


class Reply(Signature):
    """Write the first reply to a ticket, in its language, in two sentences at most."""

    ticket: str = InputField()
    kind: str = InputField(description="what kind of ticket it is")
    reply: str = OutputField()


class Desk(Module):
    """Two questions put together. The model is whoever it is used with."""

    def __init__(self) -> None:
        self.triage = ChainOfThought(Triage)
        self.write = Predict(Reply)

    async def forward(self, ticket: str) -> tuple[Triage, str]:
        found = await self.triage.run(ticket=ticket)
        print(f"because: {found.reasoning}")
        written = await self.write(ticket=ticket, kind=found.value.kind)
        return found.value, written.reply


async def main(model: str, ticket: str) -> None:
    with using(resolve(model)):
        triage, reply = await Desk()(ticket)
    print(f"{triage.kind}, urgency {triage.urgency}")
    print(reply)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    trio.run(main, sys.argv[1], sys.argv[2])

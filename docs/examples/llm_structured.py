"""Read invoices: a text in, a checked value out.

    python llm_structured.py claude/haiku invoice-*.txt

claude, codex and qwen are asked by their own structured output, other backends in words; what does not fit is sent back, twice at most.
"""

import sys
from datetime import date
from pathlib import Path

from pydantic import BaseModel, Field

from clisup.llm import StructureError, blocking


class Invoice(BaseModel):
    """What a bookkeeper wants to know."""

    number: str
    day: date
    total: float = Field(ge=0, description="what is to be paid, taxes included")
    currency: str = Field(pattern=r"^[A-Z]{3}$", description="ISO 4217")


def main(name: str, files: list[str]) -> int:
    model = blocking.resolve(name)
    unread = 0
    for file in files:
        try:
            found = model.structured(f"Read this invoice:\n\n{Path(file).read_text()}", Invoice)
        except StructureError as error:
            unread += 1
            print(f"{file}: {'; '.join(error.problems)}", file=sys.stderr)
        else:
            invoice = found.value
            print(f"{file}: {invoice.number} of {invoice.day}: {invoice.total:.2f} {invoice.currency}")
    return 1 if unread else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))

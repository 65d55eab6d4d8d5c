"""Questions that the models of the fakes put to their user, in the form that claude and qwen share."""

from __future__ import annotations

from typing import Any

__all__ = ["QUESTIONS", "question"]


def question(text: str, header: str, choices: dict[str, str], *, several: bool = False) -> dict[str, Any]:
    """Return a question with `choices`, labels to descriptions."""
    options = [{"label": label, "description": description} for label, description in choices.items()]
    return {"question": text, "header": header, "options": options, "multiSelect": several}


QUESTIONS = {
    "questions": [
        question("Which database?", "Store", {"SQLite": "one file", "Postgres": "a server"}),
        question("Which checks?", "Checks", {"lint": "a", "unit": "b"}, several=True),
    ]
}

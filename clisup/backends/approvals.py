"""Open permission requests of one run: requests of the CLI as events, and decisions as lines for its stdin. Pure.

The open requests follow from the CLI's lines alone, so the same lines give the same events after a restart. The daemon's journal
records the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from clisup.errors import UsageError
from clisup.model.events import ApprovalRequested, ApprovalResolved, EventBase
from clisup.policy.approval_options import options_of

__all__ = ["ApprovalAnswer", "Questions", "answers_by_place", "refuse_other_input", "refuse_rule"]

_ID_CHARS = 256
_REASON_CHARS = 2000


class ApprovalAnswer(Struct, frozen=True):
    """Decision on a tool call. The daemon itself uses `cancelled`, when the turn ends and its requests with it.

    `updated_input` replaces the tool's input. `remember` asks the CLI to keep the answer, if the CLI offers that. `by_rule`: a
    rule decided, which has no values for an elicitation. `option` is the id of one of the CLI's own answers.
    """

    decision: Literal["allow", "deny", "cancelled"]
    message: str | None = None
    updated_input: Mapping[str, Any] | None = None
    remember: bool = False
    by_rule: bool = False
    option: str | None = None


def refuse_other_input(answer: ApprovalAnswer, reason: str) -> None:
    """Raise `UsageError` for an answer with another input, for a CLI without such answers."""
    if answer.updated_input is not None:
        raise UsageError(
            f"cannot change the input of this tool call, because {reason}",
            kind="unsupported",
            hint="deny it, and say what to do instead in the next prompt",
        )


def refuse_rule(answer: ApprovalAnswer, what: str, missing: str) -> None:
    """Raise `UsageError` for an `allow` by a rule that would have to bring answers or values."""
    if answer.by_rule:
        raise UsageError(
            f"cannot {what} by a rule, because a rule has no {missing}",
            kind="unsupported",
            hint='ask for it: a rule with decision = "ask" before this one',
        )


def answers_by_place(questions: Sequence[str], answer: ApprovalAnswer) -> dict[str, str]:
    """Return the answers to questions as qwen 0.24.4 takes them: by the place of the question.

    Raises `UsageError` for answers of another form, and for an allow by a rule: a rule has no answers.
    """
    refuse_rule(answer, "answer questions", "answers for them")
    given = (answer.updated_input or {}).get("answers", {})
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise UsageError(
            "cannot answer the questions: `answers` is no object of texts",
            hint="answer with updated_input.answers: the text of each question, and its answer",
        )
    return {str(place): given[text] for place, text in enumerate(questions) if text in given}


Word = Callable[[ApprovalAnswer], str | None]


def _without_options(word: Word, answer: ApprovalAnswer) -> str | None:
    if answer.option is not None:
        raise UsageError(
            "cannot choose an option, because the CLI offers none for this approval",
            kind="unsupported",
            hint="answer with allow or deny",
        )
    return word(answer)


class Questions:
    """Open requests by their ids in the CLI. A reused id gets a number, so that a late answer to the first request never
    reaches the second.

    Only `uses`, the count of requests by id, is part of a decoder's state: no checkpoint is written while a request waits.
    """

    __slots__ = ("_ids", "_run", "_words", "uses")

    def __init__(self, run: int) -> None:
        self._run = run
        self._ids: dict[str | int | None, str] = {}
        self.uses: dict[str, int] = {}
        self._words: dict[str, Word] = {}

    def ask(self, request_id: str | int | None, word: Word, **fields: Any) -> ApprovalRequested:
        """Add a request. `word` makes the answering line, `fields` are those of the event. Raises `ValueError` for invalid fields."""
        plain = f"{self._run}:{str(request_id)[:_ID_CHARS]}"
        use = self.uses.get(plain, 0) + 1
        has_options = bool(options_of(fields.get("suggestions", ())))
        approval_id = plain if use == 1 else f"{plain}#{use}"
        reason = fields.pop("reason", None)
        event = ApprovalRequested(approval_id=approval_id, reason=reason[:_REASON_CHARS] if reason else None, **fields)
        self.uses[plain] = use
        self._ids[request_id] = approval_id
        self._words[approval_id] = word if has_options else partial(_without_options, word)
        return event

    def withdraw(self, request_id: str | int | None) -> list[EventBase]:
        """Close a request for which the CLI no longer waits, answered or not. Ignore an id that is not open."""
        approval_id = self._ids.pop(request_id, None)
        return [] if approval_id is None else self._gone(approval_id)

    def close(self) -> list[EventBase]:
        """Close all requests: the CLI waits for none of them."""
        self._ids.clear()
        return [event for approval_id in list(self._words) for event in self._gone(approval_id)]

    def _gone(self, approval_id: str) -> list[EventBase]:
        if self._words.pop(approval_id, None) is None:
            return []
        return [ApprovalResolved(approval_id=approval_id, decision="cancelled")]

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the line for the CLI's stdin, or None if no such request is open or the CLI needs no answer.

        Raises `UsageError` for a decision that the CLI does not offer here (`unsupported`) or that says too little
        (`option_needed`).
        """
        word = self._words.get(approval_id)
        return None if word is None else word(answer)

"""The questions of one run that wait for a word: what a CLI asks as events, and the word as a line for its stdin. Pure.

What is open here follows from the CLI's lines alone, so that the same lines give the same events after a restart. Which
questions were answered is the daemon's to know: its journal says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from clisup.model.events import ApprovalRequested, ApprovalResolved, EventBase

__all__ = ["ApprovalAnswer", "Questions"]

_ID_CHARS = 256
_REASON_CHARS = 2000


class ApprovalAnswer(Struct, frozen=True):
    """The word on a tool call. `cancelled` is the daemon's own: the turn is being ended, and the question with it.

    `updated_input` takes the place of the tool's input, `remember` asks the CLI to keep the answer where it offers that.
    """

    decision: Literal["allow", "deny", "cancelled"]
    message: str | None = None
    updated_input: Mapping[str, Any] | None = None
    remember: bool = False


Word = Callable[[ApprovalAnswer], str | None]


class Questions:
    """Open questions by the CLI's own id of each. An id that the CLI uses again gets a number, so that a late answer to the
    first can never be taken for one to the second.
    """

    __slots__ = ("_ids", "_run", "_uses", "_words")

    def __init__(self, run: int) -> None:
        self._run = run
        self._ids: dict[str | int | None, str] = {}
        self._uses: dict[str, int] = {}
        self._words: dict[str, Word] = {}

    def ask(self, request_id: str | int | None, word: Word, **fields: Any) -> ApprovalRequested:
        """A new question. `word` makes the line that answers it, `fields` are those of the event. Raises ValueError for odd ones."""
        plain = f"{self._run}:{str(request_id)[:_ID_CHARS]}"
        use = self._uses.get(plain, 0) + 1
        approval_id = plain if use == 1 else f"{plain}#{use}"
        reason = fields.pop("reason", None)
        event = ApprovalRequested(approval_id=approval_id, reason=reason[:_REASON_CHARS] if reason else None, **fields)
        self._uses[plain] = use
        self._ids[request_id] = approval_id
        self._words[approval_id] = word
        return event

    def withdraw(self, request_id: str | int | None) -> list[EventBase]:
        """The CLI waits no longer for this one, be it answered or not. Nothing for an id that is not open."""
        approval_id = self._ids.pop(request_id, None)
        return [] if approval_id is None else self._gone(approval_id)

    def close(self) -> list[EventBase]:
        """The CLI waits for none of them any longer."""
        self._ids.clear()
        return [event for approval_id in list(self._words) for event in self._gone(approval_id)]

    def _gone(self, approval_id: str) -> list[EventBase]:
        if self._words.pop(approval_id, None) is None:
            return []
        return [ApprovalResolved(approval_id=approval_id, decision="cancelled")]

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """The line for the CLI's stdin; None where no such question is open, or the CLI wants no such word.

        Raises `UsageError(kind="unsupported")` for a word that the CLI does not offer here.
        """
        word = self._words.get(approval_id)
        return None if word is None else word(answer)

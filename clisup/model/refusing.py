"""Refusal of wrong fields from a client or a file, in words that are short whatever the value was.

pydantic quotes the value that should give a block's type as a whole: the refusal of a prompt would be as long as the
prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

PLACE_CHARS = 128
REASON_CHARS = 200


def wrong_field(error: ValidationError) -> tuple[str, str]:
    """Return the path of the first wrong field, empty for the whole value, and the reason.

    Neither quotes a value as a whole.
    """
    problem = error.errors(include_input=False, include_url=False)[0]
    reason = problem["msg"]
    where = ".".join(str(part) for part in problem["loc"])[:PLACE_CHARS]
    if len(reason) > REASON_CHARS:  # the expected value stands at the end
        reason = f"{reason[: REASON_CHARS // 2]} ... {reason[-REASON_CHARS // 2 :]}"
    return where, reason

"""Taking secrets out of text that a CLI wrote, before anyone sees it: known values first, then well-known shapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Redactor"]

_MIN_LENGTH = 8  # a shorter "secret" would blank out ordinary words
_MASK = "[redacted]"
_SHAPES = re.compile(
    r"""(
      (?:(?<![A-Za-z0-9])|(?<=\\[nrt]))sk-[A-Za-z0-9_-]{16,}   # but no "task-..."; Anthropic and OpenAI keys
    | gh[pousr]_[A-Za-z0-9]{20,}                # GitHub tokens
    | xox[abprs]-[A-Za-z0-9-]{10,}              # Slack tokens
    | AKIA[0-9A-Z]{16}                          # AWS access keys
    | AIza[0-9A-Za-z_-]{30,}                    # Google keys
    | (?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*   # JSON web tokens
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/-]{12,}=*
    )""",
    re.VERBOSE,
)


class Redactor:
    """Holds secret values; has no string form of them."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        # The longest first, so that a secret inside another one does not leave the rest of it.
        self._values = sorted({value for value in values if len(value) >= _MIN_LENGTH}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._values)} values>"

    def __call__(self, text: str) -> str:
        """The text with every secret replaced."""
        for value in self._values:
            if value in text:
                text = text.replace(value, _MASK)
        return _SHAPES.sub(_MASK, text)

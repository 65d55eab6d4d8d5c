"""Terminal sequences in the words of a CLI, which belong in no message."""

from __future__ import annotations

import re

__all__ = ["without_sequences"]

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\))")
"""Colours and other control sequences, and titles."""


def without_sequences(text: str) -> str:
    """Return the text as a person reads it."""
    return _SEQUENCE.sub("", text) if "\x1b" in text else text

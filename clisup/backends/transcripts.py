"""What a CLI's own transcript says of a prompt: evidence for a turn whose end nobody saw. Pure; the rule is the same for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from clisup.backends.base import TranscriptWord

__all__ = ["find_prompt"]


def find_prompt(entries: Iterable[tuple[str, str]], wanted: Collection[str], *, answerer: str) -> TranscriptWord:
    """Do the entries (who, text) hold the user's prompt in one of its `wanted` forms, and after it a word of `answerer`?

    White space does not count, nor does the zero-width space that hides a mention: that is how prompts are altered.
    """
    found, forms = False, {_words(form) for form in wanted}
    for who, text in entries:
        if who == "user" and _words(text) in forms:
            found = True
        elif found and who == answerer:
            return "answered"
    return "prompt_found" if found else "prompt_not_found"


def _words(text: str) -> str:
    return " ".join(text.replace("\u200b", "").split())

"""Evidence about a prompt in a CLI's own transcript, for a turn whose end the daemon has not seen. Pure, for all CLIs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from clisup.backends.base import TranscriptWord

__all__ = ["find_prompt"]


def find_prompt(entries: Iterable[tuple[str, str]], wanted: Collection[str], *, answerer: str) -> TranscriptWord:
    """Tell whether the entries (role, text) hold the prompt in one of its `wanted` forms, and an answer of `answerer` after it.

    White space and the zero-width space that hides a mention do not count: adapters change prompts in these ways only.
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

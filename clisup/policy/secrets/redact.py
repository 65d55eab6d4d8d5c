"""Taking secrets out of text that a CLI wrote, before anyone sees it: known values first, then well-known shapes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

__all__ = ["MASK", "MIN_LENGTH", "Redactor", "Span", "masked", "redacted", "spellings", "united"]

MIN_LENGTH = 8
"""A shorter "secret" would blank out ordinary words, so none is looked for."""

MASK = "[redacted]"

Span = tuple[int, int]

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
_HINT = re.compile("sk-|gh[pousr]_|xox|AKIA|AIza|eyJ|earer ")
"""Each shape holds one of these: where there is none, the expression of all of them, which is slow, has nothing to find."""
_PLAIN_IN_URLS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Redactor:
    """Holds secret values; has no string form of them."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = sorted({word for value in values if len(value) >= MIN_LENGTH for word in spellings(value)})

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._values)} values>"

    @property
    def knows_any(self) -> bool:
        """Has it values of its own to hide? Most configured backends have none."""
        return bool(self._values)

    def also(self, other: Redactor) -> Redactor:
        """One that hides what either hides."""
        both = Redactor()
        both._values = sorted({*self._values, *other._values})
        return both

    def __call__(self, text: str) -> str:
        """The text with every secret replaced."""
        return masked(text, spans) if (spans := self.spans(text)) else text

    def spans(self, text: str) -> list[Span]:
        """Where secrets stand, in order; those that overlap are one, so that none leaves the rest of another."""
        return united([*self.known(text), *_shapes(text)])

    def known(self, text: str) -> list[Span]:
        """Where its own values stand, in no order: for who asks many redactors, and looks for the shapes once."""
        return [span for value in self._values if value in text for span in _everywhere(value, text)]


def redacted(text: str, redactors: Iterable[Redactor]) -> str:
    """The text without what any of them hides: all at once, or a secret within another's would leave its rest."""
    spans = _shapes(text)  # looked for once and not for each
    for redactor in redactors:
        if redactor.knows_any:
            spans += redactor.known(text)
    return masked(text, spans) if spans else text


def _shapes(text: str) -> list[Span]:
    """Where something stands that looks like a secret."""
    if _HINT.search(text) is None:
        return []
    return [match.span() for match in _SHAPES.finditer(text)]


def spellings(value: str) -> set[str]:
    """A value as it may stand in text: as it is, escaped by JSON once or twice (a tool's JSON inside a frame), in a URL."""
    words, last = {value}, {value}
    for _ in range(2):
        last = {json.dumps(word, ensure_ascii=ascii_)[1:-1] for word in last for ascii_ in (True, False)}
        words |= last
    octets = value.encode("utf-8", "surrogatepass")
    return {*words, "".join(chr(byte) if byte in _PLAIN_IN_URLS else f"%{byte:02X}" for byte in octets)}


def masked(text: str, spans: Iterable[Span]) -> str:
    """The text with a mask in each of these places."""
    at, kept = 0, []
    for start, end in united(spans):
        kept += [text[at:start], MASK]
        at = end
    return "".join([*kept, text[at:]])


def united(spans: Iterable[Span]) -> list[Span]:
    """The same places, in order, with those that overlap made one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _everywhere(value: str, text: str) -> Iterator[Span]:
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)

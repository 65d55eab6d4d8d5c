"""Redaction of secrets in text: known values first, then well-known shapes, and values after a secret's name. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

MIN_LENGTH = 8
"""Shortest secret that is redacted. A shorter "secret" would blank out ordinary words."""

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
"""Hint of each shape. Text without a hint skips the slow expression of all shapes."""
_PLAIN_IN_URLS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Redactor:
    """Redactor of secret values, without a string form of the values."""

    __slots__ = ("_values", "knows_any")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = sorted({word for value in values if len(value) >= MIN_LENGTH for word in spellings(value)})
        self.knows_any = bool(self._values)
        """True if the redactor has its own values to hide. Most configured backends have no such values."""

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._values)} values>"

    def also(self, other: Redactor) -> Redactor:
        """Return a redactor that hides the values of both."""
        both = Redactor()
        both._values = sorted({*self._values, *other._values})
        both.knows_any = bool(both._values)
        return both

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced."""
        return masked(text, spans) if (spans := self.spans(text)) else text

    def spans(self, text: str) -> list[Span]:
        """Return the places of secrets, in order.

        Overlapping places are joined, so that no part of a secret remains.
        """
        return united([*self.known(text), *_shapes(text)])

    def known(self, text: str) -> list[Span]:
        """Return the places of the redactor's own values, in no order.

        `redacted` asks many redactors and searches the shapes once.
        """
        return [span for value in self._values if value in text for span in _everywhere(value, text)]


def redacted(text: str, redactors: Iterable[Redactor]) -> str:
    """Return the text without the secrets of all redactors.

    All secrets are replaced at once. Otherwise a secret within another secret would leave the rest of the outer secret.
    """
    spans = _shapes(text)  # one search for all redactors
    for redactor in redactors:
        if redactor.knows_any:
            spans += redactor.known(text)
    return masked(text, spans) if spans else text


def _shapes(text: str) -> list[Span]:
    if _HINT.search(text) is None:
        return []
    return [match.span() for match in _SHAPES.finditer(text)]


def spellings(value: str) -> set[str]:
    """Return the spellings of a value in text: plain, escaped by JSON once or twice (a tool's JSON inside a frame), or
    in a URL."""
    words, last = {value}, {value}
    for _ in range(2):
        last = {json.dumps(word, ensure_ascii=ascii_)[1:-1] for word in last for ascii_ in (True, False)}
        words |= last
    octets = value.encode("utf-8", "surrogatepass")
    return {*words, "".join(chr(byte) if byte in _PLAIN_IN_URLS else f"%{byte:02X}" for byte in octets)}


def masked(text: str, spans: Iterable[Span]) -> str:
    """Return the text with a mask in each of these places."""
    at, kept = 0, []
    for start, end in united(spans):
        kept += [text[at:start], MASK]
        at = end
    return "".join([*kept, text[at:]])


def united(spans: Iterable[Span]) -> list[Span]:
    """Return the places in order, with overlapping places joined."""
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


_NAMED = re.compile(
    r"(?i)^-{0,2}[a-z0-9_.-]*(key|token|secret|passw|auth|credential|cookie|header)[a-z0-9_.-]*(?:[=:](.+))?$",
    re.DOTALL,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


def secret_arguments(words: Iterable[str]) -> list[str]:
    """Return the words and parts of a command line that must stay hidden."""
    found: list[str] = []
    named = False
    for word in words:
        match = _NAMED.match(word)
        if named and not word.startswith("--"):
            found.append(word)
        if match and match[2]:
            found.append(match[2].strip())
        named = bool(match) and not (match and match[2]) and word.startswith("-")
        found += _IN_URL.findall(word)
    return found

"""Structure-aware mutations of JSON lines: places of keys and values are found once for each seed, then it is all slicing.

A hostile value lands where the seed had a good one, so most inputs get past the JSON reader and into the code behind it;
the rest are broken as bytes. Everything follows from the seed of the one random generator.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from tests.fuzz.atoms import JUNK, KEYS, NUMBERS, STRINGS, VALUES

__all__ = ["Mutator", "Seed"]

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_GARBAGE = re.compile(rb'[{}\[\]",:]')
_QUOTE, _DIGITS = ord('"'), b"-0123456789"


class Span(NamedTuple):
    start: int
    end: int


class Seed:
    """A line and where its keys, members and values are."""

    __slots__ = ("data", "members", "values")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.values: list[Span] = []
        self.members: list[tuple[Span, Span]] = []  # key, value
        self._parse()

    def _parse(self) -> None:
        """One pass with a stack: each frame is where a container began, and the key that waits for its value."""
        stack: list[tuple[int, Span | None]] = []
        key: Span | None = None
        text: Span | None = None
        for match in _TOKEN.finditer(self.data):
            token, span = match[0], Span(*match.span())
            if token in (b"{", b"["):
                stack.append((span.start, key))
                key = text = None
            elif token == b":":
                key, text = text, None
            elif token in (b",", b"}", b"]"):
                self._value(key, text)
                key = text = None
                if token != b"," and stack:
                    start, key = stack.pop()
                    text = Span(start, span.end)
            else:
                text = span
        self._value(key, text)

    def _value(self, key: Span | None, value: Span | None) -> None:
        if value is None:
            return
        self.values.append(value)
        if key is not None:
            self.members.append((key, value))


class Mutator:
    """Makes inputs from seeds. `rng` is the only source of chance."""

    def __init__(self, seeds: Sequence[Seed], rng: random.Random) -> None:
        self._seeds = seeds
        self.rng = rng
        self._edits = (
            [self._swap] * 6 + [self._splice] * 3 + [self._duplicate] * 2 + [self._drop, self._rename, self._insert, self._wrap]
        )  # fmt: skip
        self._spoils = (self._noise, self._flip, self._truncate, self._repeat, self._cross, self._unpunctuate)
        self._recodings = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7")

    def pick(self) -> Seed:
        return self._seeds[int(self.rng.random() * len(self._seeds))]

    def mutate(self, seed: Seed) -> bytes:
        """A neighbour of `seed`: 1 to 4 edits of its JSON, and one time in six some of its bytes."""
        chance = self.rng.random
        data, current = seed.data, seed
        if current.values:
            edits = self._edits
            data = edits[int(chance() * len(edits))](current)
            while chance() < 0.15:
                current = Seed(data) if len(data) < 4096 else seed
                if not current.values:
                    break
                data = edits[int(chance() * len(edits))](current)
        if chance() < 0.17 or not seed.values:
            data = self._choice(self._spoils)(data)
        if chance() < 0.01:
            data = data.decode("utf-8", "replace").encode(self._choice(self._recodings))
        return data

    def _choice(self, items: Sequence):  # type: ignore[no-untyped-def, type-arg]
        return items[int(self.rng.random() * len(items))]

    # -- edits of the structure

    def _swap(self, seed: Seed) -> bytes:
        """Six in ten of the same type: a reader that asks for the type first is passed, too."""
        span = self._choice(seed.values)
        pool = VALUES
        if self.rng.random() < 0.6:
            first = seed.data[span.start]
            pool = STRINGS if first == _QUOTE else NUMBERS if first in _DIGITS else VALUES
        return _replace(seed.data, span, self._choice(pool))

    def _splice(self, seed: Seed) -> bytes:
        other = self.pick()
        if not other.values:
            return seed.data
        taken = self._choice(other.values)
        return _replace(seed.data, self._choice(seed.values), other.data[taken.start : taken.end])

    def _duplicate(self, seed: Seed) -> bytes:
        """A key twice: with a hostile value before or after the good one."""
        if not seed.members:
            return seed.data
        key, value = self._choice(seed.members)
        name = seed.data[key.start : key.end]
        at, hostile = key.start, name + b":" + self._choice(VALUES)
        if self.rng.random() < 0.5:
            return seed.data[:at] + hostile + b"," + seed.data[at:]
        return seed.data[: value.end] + b"," + hostile + seed.data[value.end :]

    def _drop(self, seed: Seed) -> bytes:
        if not seed.members:
            return seed.data
        key, value = self._choice(seed.members)
        before, after = seed.data[: key.start], seed.data[value.end :]
        return before + after[1:] if after[:1] == b"," else before.rstrip(b",") + after

    def _rename(self, seed: Seed) -> bytes:
        if not seed.members:
            return seed.data
        key, _ = self._choice(seed.members)
        return _replace(seed.data, key, self._choice(KEYS))

    def _insert(self, seed: Seed) -> bytes:
        if not seed.members:
            return seed.data
        at = self._choice(seed.members)[0].start
        return seed.data[:at] + self._choice(KEYS) + b":" + self._choice(VALUES) + b"," + seed.data[at:]

    def _wrap(self, seed: Seed) -> bytes:
        span = self._choice(seed.values)
        depth = self._choice((1, 2, 40, 95, 130, 198, 240, 300, 1100))
        opening, closing = self._choice(((b"[", b"]"), (b'{"w":', b"}"), (b'[{"type":', b"}]")))
        return _replace(seed.data, span, opening * depth + seed.data[span.start : span.end] + closing * depth)

    # -- spoiling bytes

    def _noise(self, data: bytes) -> bytes:
        at = int(self.rng.random() * (len(data) + 1))
        junk = self._choice(JUNK) if self.rng.random() < 0.7 else self.rng.randbytes(1 + int(self.rng.random() * 40))
        return data[:at] + junk + data[at + int(self.rng.random() * 3) :]

    def _flip(self, data: bytes) -> bytes:
        out = bytearray(data or b"\x00")
        for _ in range(1 + int(self.rng.random() * 4)):
            out[int(self.rng.random() * len(out))] ^= 1 << int(self.rng.random() * 8)
        return bytes(out)

    def _truncate(self, data: bytes) -> bytes:
        at = int(self.rng.random() * len(data))
        return data[:at] if self.rng.random() < 0.7 else data[at:]

    def _repeat(self, data: bytes) -> bytes:
        start = int(self.rng.random() * len(data))
        piece = data[start : start + 1 + int(self.rng.random() * 30)]
        return data[:start] + piece * (2 + int(self.rng.random() * 40)) + data[start:]

    def _cross(self, data: bytes) -> bytes:
        """Half of this line and half of another one."""
        other = self.pick().data
        return data[: int(self.rng.random() * len(data))] + other[int(self.rng.random() * len(other)) :]

    def _unpunctuate(self, data: bytes) -> bytes:
        marks = [match.start() for match in _GARBAGE.finditer(data, 0, 2000)]
        if not marks:
            return data
        at = self._choice(marks)
        return data[:at] + self._choice((b"", b"{", b"}", b"[", b"]", b'"', b",", b":")) + data[at + 1 :]


def _replace(data: bytes, span: Span, new: bytes) -> bytes:
    return data[: span.start] + new + data[span.end :]


def as_line(value: object) -> bytes:
    """A JSON value as a line of a seed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

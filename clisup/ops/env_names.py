"""Which environment variables a program's files refer to: names in JavaScript, Python and native code. Pure, on bytes.

A name counts where it is read (`process.env.NAME`, `env["NAME"]`, `os.environ.get("NAME")`), or where it stands in a row of
names of which many are known to the scrub lists: bundlers make tables of exports and arrays of a program's variables, a
linker puts strings side by side. Other words in capitals are constants, most of the time: of 10,500 in claude 2.1.329 the
lists do not know 8,100, and only a few hundred of those are variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_CHECKS", "OVERLAP", "NameCheck", "NameDrift", "Scan", "compare", "looks_secret", "remember", "restored"]

OVERLAP = 64 * 1024
"""Bytes that two pieces of a file have to share, so that no row of names is cut."""
KNOWN_SHARE = 0.3
"""So many of a row's names have to be known for the others to count as variables."""
MAX_FOUND = 20_000
"""Names that are kept of one program."""
MAX_CHECKS = 4
"""Versions of one CLI whose names are remembered, those checked last; some 50 KB each."""

_READ = re.compile(rb"""env(?:\?\.|\.|\[\s*["'`]|iron(?:\.get\(|\[)\s*["'])([A-Za-z_][A-Za-z0-9_]{1,99})""")
_EXPORT = re.compile(rb":\(\)=>")
_BEFORE_EXPORT = re.compile(rb"[,{]([A-Z][A-Z0-9_]{2,99})$")
_EXPORT_REACH = 104
_ARRAY = re.compile(rb'"[A-Z][A-Z0-9_]{2,99}"(?:,\s*"[A-Z][A-Z0-9_]{2,99}"){2,}')
_STRINGS = re.compile(rb"\0[A-Z][A-Z0-9_]{2,99}\0+(?:[A-Z][A-Z0-9_]{2,99}\0+){2,}")
_NAME_IN_ROW = re.compile(rb"[A-Z][A-Z0-9_]{2,99}")
# A property of any object that is called `env` can look like a variable: those have small letters.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]|[a-z]+(?:_[a-z]+)+")
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|HEADERS|AUTH|_UR[LI]$|ENDPOINT|PROXY|SOCKET|_HOST$", re.IGNORECASE
)


def looks_secret(name: str) -> bool:
    """Is it named like a credential, or like a place that one could be sent to?"""
    return _SECRET.search(name) is not None


class Scan:
    """Takes a program's files piece by piece. `known` says whether a scrub list decides about a name."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self.names: set[str] = set()

    def feed(self, piece: bytes) -> None:
        """The next piece of a file; pieces of one file overlap by `OVERLAP`."""
        for name in _names_read(piece):
            self._add(name)
        for row in _rows(piece):
            if sum(map(self._known, row)) >= KNOWN_SHARE * len(row):
                for name in row:
                    self._add(name)

    def _add(self, name: str) -> None:
        if _VARIABLE.fullmatch(name) and len(self.names) < MAX_FOUND:
            self.names.add(name)


@dataclass(frozen=True, slots=True)
class NameCheck:
    """The names that one version's files held, and when that was looked at."""

    version: str
    date: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameDrift:
    """The names that no list knows; `new` are those that the check before (`since`) did not find, none at a first check."""

    found: int
    unknown: tuple[str, ...]
    new: tuple[str, ...]
    since: NameCheck | None


def compare(
    names: Collection[str], version: str, known: Callable[[str], bool], before: Sequence[NameCheck]
) -> NameDrift:
    """Compare with the check before: the last one of another version, so that asking twice gives the same answer twice."""
    unknown = tuple(sorted(name for name in names if not known(name)))
    others = [check for check in before if check.version != version]
    since = others[-1] if others else before[-1] if before else None
    seen = set(since.names) if since else set(names)
    return NameDrift(len(names), unknown, tuple(name for name in unknown if name not in seen), since)


def remember(before: Sequence[NameCheck], check: NameCheck) -> list[NameCheck]:
    """The checks to keep: one for each version, the last one at the end, `MAX_CHECKS` at most."""
    return [*(old for old in before if old.version != check.version), check][-MAX_CHECKS:]


def restored(stored: Mapping[str, Any] | None) -> list[NameCheck]:
    """The checks in what was stored; what of it is none is left out."""
    rows = (stored or {}).get("checks")
    return [check for row in (rows if isinstance(rows, list) else []) if (check := _check(row)) is not None]


def _check(row: Any) -> NameCheck | None:
    if not isinstance(row, dict) or not isinstance(row.get("names"), list):
        return None
    version, date = row.get("version"), row.get("date")
    if not isinstance(version, str) or not isinstance(date, str):
        return None
    return NameCheck(version, date, tuple(name for name in row["names"] if isinstance(name, str)))


def _names_read(piece: bytes) -> Iterator[str]:
    for match in _READ.finditer(piece):
        at = match.start()
        before = piece[at - 1 : at] if at else b""
        if not (before.isalnum() or before in (b"_", b"$")):
            yield match[1].decode()


def _rows(piece: bytes) -> Iterator[list[str]]:
    """Names that stand side by side."""
    yield from _exports(piece)
    for pattern in (_ARRAY, _STRINGS):
        for match in pattern.finditer(piece):
            yield [name.decode() for name in _NAME_IN_ROW.findall(match[0])]


def _exports(piece: bytes) -> Iterator[list[str]]:
    """Tables as a bundler writes them: `{AWS_REGION:()=>a,CLAUDE_CONFIG_DIR:()=>b}`."""
    row: list[str] = []
    last = 0
    for match in _EXPORT.finditer(piece):
        at = match.start()
        found = _BEFORE_EXPORT.search(piece, max(0, at - _EXPORT_REACH), at)
        if found is None or at - last > 2 * _EXPORT_REACH:
            if row:
                yield row
            row = []
        if found is not None:
            row.append(found[1].decode())
        last = at
    if row:
        yield row

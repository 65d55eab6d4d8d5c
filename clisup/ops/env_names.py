"""Environment variables that a program's files refer to: names in JavaScript, Python and native code. Pure, on bytes.

A name counts if the program reads it (`process.env.NAME`, `env["NAME"]`, `os.environ.get("NAME")`). A name also counts
in a row of names of which the scrub lists know many: bundlers make tables of exports and arrays of a program's
variables, and a linker puts strings side by side. Other words in capitals are mostly constants. The lists do not know
8,100 of the 10,500 words in claude 2.1.329, and only a few hundred of these are variables.
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
"""Share of known names in a row from which on the others count as variables."""
MAX_FOUND = 20_000
"""Limit of names that are kept of one program."""
MAX_CHECKS = 4
"""Limit of remembered versions of one CLI, those checked last; some 50 KB each."""

_READ = re.compile(rb"""env(?:\?\.|\.|\[\s*["'`]|iron(?:\.get\(|\[)\s*["'])([A-Za-z_][A-Za-z0-9_]{1,99})""")
_EXPORT = re.compile(rb":\(\)=>")
_BEFORE_EXPORT = re.compile(rb"[,{]([A-Z][A-Z0-9_]{2,99})$")
_EXPORT_REACH = 104
_ARRAY = re.compile(rb'"[A-Z][A-Z0-9_]{2,99}"(?:,\s*"[A-Z][A-Z0-9_]{2,99}"){2,}')
_STRINGS = re.compile(rb"\0[A-Z][A-Z0-9_]{2,99}\0+(?:[A-Z][A-Z0-9_]{2,99}\0+){2,}")
_NAME_IN_ROW = re.compile(rb"[A-Z][A-Z0-9_]{2,99}")
# A property of any object called `env` can look like a variable. Such properties have small letters.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]|[a-z]+(?:_[a-z]+)+")
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|HEADERS|AUTH|_UR[LI]$|ENDPOINT|PROXY|SOCKET|_HOST$", re.IGNORECASE
)


def looks_secret(name: str) -> bool:
    """Tell whether the name looks like a credential, or like a place that a credential could be sent to."""
    return _SECRET.search(name) is not None


class Scan:
    """Scan of a program's files, piece by piece. `known` tells whether a scrub list decides about a name."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self.names: set[str] = set()

    def feed(self, piece: bytes) -> None:
        """Scan the next piece of a file. Pieces of one file overlap by `OVERLAP`."""
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
    """Names in the files of one version, and the date of the check."""

    version: str
    date: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameDrift:
    """Names that no list knows.

    `new` are the names that the previous check (`since`) did not find, none at a first check.
    """

    found: int
    unknown: tuple[str, ...]
    new: tuple[str, ...]
    since: NameCheck | None


def compare(
    names: Collection[str], version: str, known: Callable[[str], bool], before: Sequence[NameCheck]
) -> NameDrift:
    """Compare with the last check of another version, so that a repeated check gives the same answer."""
    unknown = tuple(sorted(name for name in names if not known(name)))
    others = [check for check in before if check.version != version]
    since = others[-1] if others else before[-1] if before else None
    seen = set(since.names) if since else set(names)
    return NameDrift(len(names), unknown, tuple(name for name in unknown if name not in seen), since)


def remember(before: Sequence[NameCheck], check: NameCheck) -> list[NameCheck]:
    """Return the checks to keep: one for each version, the latest at the end, `MAX_CHECKS` at most."""
    return [*(old for old in before if old.version != check.version), check][-MAX_CHECKS:]


def restored(stored: Mapping[str, Any] | None) -> list[NameCheck]:
    """Return the stored checks. Invalid rows are left out."""
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
    """Yield names that stand side by side."""
    yield from _exports(piece)
    for pattern in (_ARRAY, _STRINGS):
        for match in pattern.finditer(piece):
            yield [name.decode() for name in _NAME_IN_ROW.findall(match[0])]


def _exports(piece: bytes) -> Iterator[list[str]]:
    """Yield tables of a bundler: `{AWS_REGION:()=>a,CLAUDE_CONFIG_DIR:()=>b}`."""
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

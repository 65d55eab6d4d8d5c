"""Drift: what a CLI sends or reads that this clisup does not know. Pure.

Unknown frames are those that the decoder returns as `unparsed`. Unknown fields are found in a sample: the first lines
of each kind of event in a run are compared with the fields of all recordings of that CLI
(`clisup/backends/known_fields/`). Both are counted by kind and version of the CLI. Environment variables are found in
the files of a program, and compared with the scrub lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import asdict

from clisup.model.events import BackendStatus, EventBase, SessionInit, Unparsed
from clisup.model.lines.framing import Line
from clisup.model.structs import JsonObject
from clisup.policy.watchdog import UNKNOWN_PHASE

MAX_VERSIONS = 32
"""Limit of remembered versions of CLIs. The version that was last seen longest ago goes first."""
MAX_NAMES = 64
"""Limit of remembered frame names, and of field names, of one version. Further names are only counted (`more`)."""
MAX_NAME = 200
LOOKS = 3
"""Lines inspected for each kind of event in a run."""
LOOKS_SILENT = 30
"""Inspected lines without an event in a run. These are frames of many kinds."""
MAX_UNPARSED = 1000
"""Unparsed lines that are counted in one run."""
MAX_LOOKS = 200
"""Lines inspected in one run."""
MAX_LOOK_BYTES = 256 * 1024
"""Longest inspected line, in bytes."""

KnownFields = Mapping[str, frozenset[str]]
"""Mapping of a frame name to the fields that the frame may have, nested ones with dots."""

_NAMING = ("method", "type", "subtype", "sessionUpdate")
# Objects of a fixed shape inside of a frame. Other objects may have keys chosen by a model or a user, so they are not
# inspected.
_CONTAINERS = frozenset({
    "delta", "content_block", "error", "event", "item", "message", "params", "rate_limit_info", "result", "turn", "update", "usage",
})  # fmt: skip
Row = TypeVar("Row")
_DEPTH = 4
_NAMELESS = "?"


def frame_name(frame: Mapping[str, Any]) -> str:
    """Return the kind of a frame in the CLI's own words: `stream_event/content_block_delta/text_delta`,
    `session/update/tool_call`.
    """
    if words := _words(frame, _DEPTH):
        return "/".join(words)[:MAX_NAME]
    return "error answer" if "error" in frame else "answer" if "result" in frame else _NAMELESS


def _words(frame: Mapping[str, Any], depth: int) -> list[str]:
    found = [word for key in _NAMING if isinstance(word := frame.get(key), str) and word]
    # Below the first level "message" is the API's name for the object itself.
    words = [word for word in found if word != "message" or depth == _DEPTH]
    if depth:
        for key in ("item", "event", "params", "update", "message", "delta", "content_block"):
            if isinstance(inner := frame.get(key), dict):
                words += _words(inner, depth - 1)
    return words


def field_names(frame: Mapping[str, Any], *, prefix: str = "", depth: int = _DEPTH) -> list[str]:
    """Return the fields of a frame, and with dots the fields of nested objects with a fixed shape."""
    names = []
    for key, value in frame.items():
        name = f"{prefix}{key}"
        names.append(name)
        if depth and key in _CONTAINERS and isinstance(value, dict):
            names += field_names(value, prefix=f"{name}.", depth=depth - 1)
    return names


class FrameSample:
    """Sample of one run's frames. `see` is on the hot path: for a frequent kind of line it is one lookup."""

    __slots__ = ("_done", "_known", "_left", "_looks", "fields", "frames", "version")

    def __init__(self, known: KnownFields | None) -> None:
        """Begin a sample. `known` is None if the fields of this kind are unknown; then only unknown frames count."""
        self._known = known
        self._looks: dict[type[EventBase] | None, int] = {}
        self._done: set[type[EventBase] | None] = set()
        self._left = MAX_LOOKS
        self.frames: dict[str, int] = {}
        self.fields: dict[str, int] = {}
        self.version: str | None = None

    def see(self, line: Line, events: Sequence[EventBase]) -> None:
        """Record a line and its events."""
        if not events:
            self.look(line, None)
            return
        first = events[0]
        if isinstance(first, BackendStatus) and first.status == UNKNOWN_PHASE:
            _count(self.frames, f"state {first.detail}"[:MAX_NAME])
        if (kind := type(first)) in self._done:
            return
        if kind is Unparsed:
            self._unparsed(line, first)
            return
        if isinstance(first, SessionInit) and first.backend_version and self._left > 0:
            self.version = first.backend_version
        self.look(line, kind)

    def look(self, line: Line, kind: type[EventBase] | None) -> None:
        """Record a line that became one event of this kind, or none."""
        if kind in self._done:
            return
        looks = self._looks[kind] = self._looks.get(kind, 0) + 1
        if looks >= (LOOKS_SILENT if kind is None else LOOKS) or self._left <= 0:
            self._done.add(kind)
        if self._left <= 0:
            return
        self._left -= 1
        frame = _frame(line) if self._known is not None else None
        if frame is not None:
            self._compare(frame)

    def _unparsed(self, line: Line, event: EventBase) -> None:
        looks = self._looks[Unparsed] = self._looks.get(Unparsed, 0) + 1
        if looks >= MAX_UNPARSED:
            self._done.add(Unparsed)
        if not isinstance(event, Unparsed) or event.reason not in ("unknown_type", "malformed"):
            return
        if (frame := _frame(line)) is None:
            return  # not a frame: it says nothing about the version
        name = frame_name(frame)
        if event.reason == "unknown_type":
            _count(self.frames, name)
        elif name != _NAMELESS:
            _count(self.frames, f"{name} (of another shape)")

    def _compare(self, frame: Mapping[str, Any]) -> None:
        assert self._known is not None
        name = frame_name(frame)
        if (fields := self._known.get(name)) is None:
            return  # no recording has such a frame, but the decoder knows it
        for found in field_names(frame):
            if found not in fields:
                _count(self.fields, f"{name}: {found}"[:MAX_NAME])


def _count(counts: dict[str, int], name: str, times: int = 1) -> None:
    if name in counts or len(counts) < MAX_NAMES:
        counts[name] = counts.get(name, 0) + times


def _frame(line: Line) -> JsonObject | None:
    if line.oversize or line.size > MAX_LOOK_BYTES:
        return None
    try:
        frame = json.loads(line.data)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


class DriftEntry(Struct):
    """Unknown names in the output of one version of one CLI: how often, and when first and last."""

    kind: str
    version: str
    first_seen: str
    last_seen: str
    frames: dict[str, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    more: int = 0
    """Sightings of names beyond `MAX_NAMES`."""


class DriftBook:
    """Record of all sightings, bounded, and in a form that survives a restart."""

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        """Restore a book from `stored`, the result of an earlier `dump`. Unreadable parts are left out."""
        self._entries: dict[tuple[str, str], DriftEntry] = {}
        for entry in _stored_rows(stored, "entries", DriftEntry):
            self._entries[entry.kind, entry.version] = entry

    def add(self, kind: str, version: str | None, sample: FrameSample, *, ts: str) -> bool:
        """Add a run's sample. Return False if it held nothing unknown."""
        if not sample.frames and not sample.fields:
            return False
        key = (kind, version or "unknown")
        entry = self._entries.pop(key, None) or DriftEntry(*key, first_seen=ts, last_seen=ts)
        entry.last_seen = ts
        self._entries[key] = entry  # the last entry of the mapping is the one seen last
        for counts, found in ((entry.frames, sample.frames), (entry.fields, sample.fields)):
            for name, times in found.items():
                if name in counts or len(counts) < MAX_NAMES:
                    counts[name] = counts.get(name, 0) + times
                else:
                    entry.more += times
        while len(self._entries) > MAX_VERSIONS:
            del self._entries[next(iter(self._entries))]
        return True

    def __iter__(self) -> Iterator[DriftEntry]:
        return iter(list(self._entries.values()))

    def dump(self) -> JsonObject:
        """Return all entries, for a file."""
        return {"v": 1, "entries": [asdict(entry) for entry in self]}


def _stored_rows(stored: Mapping[str, Any] | None, key: str, kind: type[Row]) -> list[Row]:
    """Return the rows of a stored list. Invalid rows are left out."""
    found: list[Row] = []
    rows = (stored or {}).get(key)
    for row in rows if isinstance(rows, list) else []:
        with suppress(ValidationError):
            found.append(convert(row, kind))
    return found


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
    """Scan of a program's files, piece by piece. `known` tells whether a scrub list decides about a name.

    A name counts if the program reads it (`process.env.NAME`, `os.environ.get("NAME")`), or if it stands in a row of
    names of which the lists know many: bundlers make tables of a program's variables, and a linker puts strings side by
    side. Other words in capitals are mostly constants: of 10,500 in claude 2.1.329 a few hundred are variables.
    """

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


class NameCheck(Struct, frozen=True):
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
    return _stored_rows(stored, "checks", NameCheck)


def _names_read(piece: bytes) -> Iterator[str]:
    for match in _READ.finditer(piece):
        at = match.start()
        before = piece[at - 1 : at] if at else b""
        if not (before.isalnum() or before in (b"_", b"$")):
            yield match[1].decode()


def _rows(piece: bytes) -> Iterator[list[str]]:
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

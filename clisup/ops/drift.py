"""Drift: frames and fields of a CLI that this clisup does not know, counted by kind and version of the CLI. Pure.

Unknown frames are those that the decoder returns as `unparsed`. Unknown fields are found in a sample: the first lines
of each kind of event in a run are compared with the fields of all recordings of that CLI
(`clisup/backends/known_fields/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from clisup.model.events import EventBase, SessionInit, Unparsed
from clisup.model.lines.framing import Line

__all__ = ["DriftBook", "DriftEntry", "FrameSample", "KnownFields", "field_names", "frame_name"]

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
_DEPTH = 4
_NAMELESS = "?"


def frame_name(frame: Mapping[str, Any]) -> str:
    """Return the kind of a frame in the CLI's own words: `stream_event/content_block_delta/text_delta`,
    `session/update/tool_call`.
    """
    if words := list(_words(frame, _DEPTH)):
        return "/".join(words)[:MAX_NAME]
    return "error answer" if "error" in frame else "answer" if "result" in frame else _NAMELESS


def _words(frame: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key in _NAMING:
        if isinstance(word := frame.get(key), str) and (word != "message" or depth == _DEPTH) and word:
            yield word  # below, "message" is the API's name for the object itself
    if depth:
        for key in ("item", "event", "params", "update", "message", "delta", "content_block"):
            if isinstance(inner := frame.get(key), dict):
                yield from _words(inner, depth - 1)


def field_names(frame: Mapping[str, Any], *, prefix: str = "", depth: int = _DEPTH) -> Iterator[str]:
    """Yield the fields of a frame, and with dots the fields of nested objects with a fixed shape."""
    for key, value in frame.items():
        name = f"{prefix}{key}"
        yield name
        if depth and key in _CONTAINERS and isinstance(value, dict):
            yield from field_names(value, prefix=f"{name}.", depth=depth - 1)


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

    def has_enough(self, kind: type[EventBase] | None) -> bool:
        """Tell whether enough lines of this kind of event, or without an event, were inspected."""
        return kind in self._done

    def see(self, line: Line, events: Sequence[EventBase]) -> None:
        """Record a line and its events."""
        if not events:
            self.look(line, None)
            return
        if (kind := type(first := events[0])) in self._done:
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


def _frame(line: Line) -> dict[str, Any] | None:
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
        rows = (stored or {}).get("entries")
        for row in rows if isinstance(rows, list) else []:
            if (entry := _restored(row)) is not None:
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

    def dump(self) -> dict[str, Any]:
        """Return all entries, for a file."""
        names = DriftEntry.__struct_fields__
        return {"v": 1, "entries": [{name: getattr(entry, name) for name in names} for entry in self]}


def _restored(row: Any) -> DriftEntry | None:
    texts = ("kind", "version", "first_seen", "last_seen")
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in texts):
        return None
    more = row.get("more")
    kind, version, first_seen, last_seen = (row[name] for name in texts)
    return DriftEntry(
        kind,
        version,
        first_seen,
        last_seen,
        frames=_counts(row.get("frames")),
        fields=_counts(row.get("fields")),
        more=more if isinstance(more, int) else 0,
    )


def _counts(value: Any) -> dict[str, int]:
    pairs = value.items() if isinstance(value, dict) else []
    good = [(str(name)[:MAX_NAME], times) for name, times in pairs if isinstance(times, int)]
    return dict(good[:MAX_NAMES])

"""What a CLI says that this clisup does not know: unknown frames and fields, counted by kind and version of the CLI. Pure.

Unknown frames are those that the decoder gives as `unparsed`. Unknown fields are found in a sample: the first lines of each
kind of event in a run are compared with the fields of all recordings of that CLI (`clisup/backends/known_fields/`).
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
"""Versions of CLIs that are remembered; the one that was seen last the longest ago goes first."""
MAX_NAMES = 64
"""Names of frames, and of fields, that are remembered of one version; others are only counted (`more`)."""
MAX_NAME = 200
LOOKS = 3
"""Lines that are looked at for each kind of event in a run."""
LOOKS_SILENT = 30
"""The same for lines that give no event: those are frames of many kinds."""
MAX_UNPARSED = 1000
"""Unparsed lines that are counted in one run."""
MAX_LOOKS = 200
"""Lines that are looked at in one run."""
MAX_LOOK_BYTES = 256 * 1024
"""Longer lines are not looked at."""

KnownFields = Mapping[str, frozenset[str]]
"""Frame name to the fields that it may have, nested ones with dots."""

_NAMING = ("method", "type", "subtype", "sessionUpdate")
# Objects of a fixed shape inside of a frame. Others may have keys of a model's or a user's choice: they are not looked into.
_CONTAINERS = frozenset({
    "delta", "content_block", "error", "event", "item", "message", "params", "rate_limit_info", "result", "turn", "update", "usage",
})  # fmt: skip
_DEPTH = 4
_NAMELESS = "?"


def frame_name(frame: Mapping[str, Any]) -> str:
    """What kind of frame it is, in the CLI's own words: `stream_event/content_block_delta/text_delta`, `session/update/tool_call`."""
    if words := list(_words(frame, _DEPTH)):
        return "/".join(words)[:MAX_NAME]
    return "error answer" if "error" in frame else "answer" if "result" in frame else _NAMELESS


def _words(frame: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key in _NAMING:
        if isinstance(word := frame.get(key), str) and (word != "message" or depth == _DEPTH) and word:
            yield word  # below, "message" is what the API calls the object itself
    if depth:
        for key in ("item", "event", "params", "update", "message", "delta", "content_block"):
            if isinstance(inner := frame.get(key), dict):
                yield from _words(inner, depth - 1)


def field_names(frame: Mapping[str, Any], *, prefix: str = "", depth: int = _DEPTH) -> Iterator[str]:
    """The fields of a frame, and with dots those of the objects in it whose shape is fixed."""
    for key, value in frame.items():
        name = f"{prefix}{key}"
        yield name
        if depth and key in _CONTAINERS and isinstance(value, dict):
            yield from field_names(value, prefix=f"{name}.", depth=depth - 1)


class FrameSample:
    """One run's frames. `see` is on the hot path: for a line of a kind that was seen often enough it is one lookup."""

    __slots__ = ("_done", "_known", "_left", "_looks", "fields", "frames", "version")

    def __init__(self, known: KnownFields | None) -> None:
        """`known` is None where nothing is known of this kind's fields: then only unknown frames count."""
        self._known = known
        self._looks: dict[type[EventBase] | None, int] = {}
        self._done: set[type[EventBase] | None] = set()
        self._left = MAX_LOOKS
        self.frames: dict[str, int] = {}
        self.fields: dict[str, int] = {}
        self.version: str | None = None

    def has_enough(self, kind: type[EventBase] | None) -> bool:
        """Need no more lines be looked at that become this kind of event, or none?"""
        return kind in self._done

    def see(self, line: Line, events: Sequence[EventBase]) -> None:
        """Take note of a line and of what it became."""
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
        """Take note of a line that became this kind of event and no more, or none."""
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
            return  # no frame at all: it says nothing of the version
        name = frame_name(frame)
        if event.reason == "unknown_type":
            _count(self.frames, name)
        elif name != _NAMELESS:
            _count(self.frames, f"{name} (of another shape)")

    def _compare(self, frame: Mapping[str, Any]) -> None:
        assert self._known is not None
        name = frame_name(frame)
        if (fields := self._known.get(name)) is None:
            return  # no recording has such a frame, and yet the decoder knows it
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
    """What was unknown in the output of one version of one CLI: names with how often, and when first and last."""

    kind: str
    version: str
    first_seen: str
    last_seen: str
    frames: dict[str, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    more: int = 0
    """Sightings of names beyond `MAX_NAMES`."""


class DriftBook:
    """All that was seen, bounded, and in a form that survives a restart."""

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        """`stored` is what `dump` gave once; what of it cannot be read is left out."""
        self._entries: dict[tuple[str, str], DriftEntry] = {}
        rows = (stored or {}).get("entries")
        for row in rows if isinstance(rows, list) else []:
            if (entry := _restored(row)) is not None:
                self._entries[entry.kind, entry.version] = entry

    def add(self, kind: str, version: str | None, sample: FrameSample, *, ts: str) -> bool:
        """Take in a run's sample. False where it held nothing unknown."""
        if not sample.frames and not sample.fields:
            return False
        key = (kind, version or "unknown")
        entry = self._entries.pop(key, None) or DriftEntry(*key, first_seen=ts, last_seen=ts)
        entry.last_seen = ts
        self._entries[key] = entry  # the last one of the mapping is the one seen last
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
        """Everything, for a file."""
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

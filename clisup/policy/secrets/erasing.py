"""Eraser of secrets and machine names, for sharing a CLI's output. The structure of its frames does not change. Pure.

The eraser searches the decoded text of each string literal, so that escapes hide no secret. The eraser also searches
across the literals of one stream of deltas. Such literals are at the same path in successive lines, even with other
streams in between.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from clisup.model.lines.literals import Literal, Path, is_json, literals
from clisup.policy.secrets.redact import MASK, Redactor, Span

_NO_TEXT = re.compile(r"(?:id|type|role|status|version|timestamp|method|model|name|kind)\Z", re.IGNORECASE)
_ID = re.compile(r"(?<!uu)id\Z", re.IGNORECASE)
_COMMON_USERS = frozenset(("root", "user", "admin", "daemon", "nobody", "debian", "ubuntu", "test", "claude", "codex"))
_COMMON_HOSTS = frozenset(("localhost", "host"))
_SHORTEST_NAME = 3


class _Edit(NamedTuple):
    """Replacement of `start` to `end` by `text`.

    `text` is empty for later parts of a match that began in an earlier literal.
    """

    start: int
    end: int
    text: str
    secret: bool


@dataclass(frozen=True, slots=True)
class Erased:
    """Output without secrets and names. `moved` maps each line's old end to its new end."""

    data: bytes
    moved: Mapping[int, int]


class Eraser:
    """Eraser of secrets and names, with counts of the replacements.

    `names` maps each machine name to its replacement.
    """

    def __init__(self, secrets: Redactor, names: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._names = names
        words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._name = re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])") if words else None
        self.secrets = self.names = 0

    def text(self, text: str) -> str:
        """Return a text without secrets and names."""
        return self._apply(text, self._edits(text))

    def value(self, value: Any) -> Any:
        """Return a JSON value with all texts free of secrets and names. Keys stay unchanged."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def lines(self, data: bytes) -> Erased:
        """Erase a CLI's output line by line. JSON lines stay valid JSON, and lines without matches keep their bytes."""
        lines = [line.decode("utf-8", "surrogateescape") for line in data.split(b"\n")]
        lines = [line if is_json(line) else self.text(line) for line in lines]
        found = [literals(line) for line in lines]
        edits = self._across(found)
        out, moved, old = [], {}, 0
        for number, (line, raw) in enumerate(zip(lines, data.split(b"\n"), strict=True)):
            out.append(self._line(line, found[number], edits[number]).encode("utf-8", "surrogateescape"))
            old += len(raw) + 1
            moved[old] = len(out[-1]) + 1
        return Erased(b"\n".join(out), _summed(moved, len(data)))

    def _line(self, line: str, found: list[Literal], edits: dict[int, list[_Edit]]) -> str:
        parts, at = [], 0
        for number, literal in enumerate(found):
            wanted = self._edits(literal.text, edits.get(number, []))
            if wanted:
                parts += [line[at : literal.start], literal.holding(self._apply(literal.text, wanted))]
                at = literal.end
        return "".join([*parts, line[at:]])

    def _edits(self, text: str, known: list[_Edit] | None = None) -> list[_Edit]:
        """Return the replacements in one text, in order. `known` are matches across several texts."""
        edits = _merged([*(known or ()), *(_Edit(*span, MASK, True) for span in self._secrets.spans(text))])
        for start, end, name in self._named(text):
            if not any(edit.start < end and start < edit.end for edit in edits):
                edits.append(_Edit(start, end, name, False))
        return sorted(edits)

    def _named(self, text: str) -> Iterator[tuple[int, int, str]]:
        for match in self._name.finditer(text) if self._name else ():
            yield *match.span(), self._names[match[0]]

    def _apply(self, text: str, edits: list[_Edit]) -> str:
        parts, at = [], 0
        for edit in edits:
            parts += [text[at : edit.start], edit.text]
            at = edit.end
            self.secrets += edit.secret and bool(edit.text)
            self.names += not edit.secret and bool(edit.text)
        return "".join([*parts, text[at:]])

    # -- matches across several literals -------------------------------------------------------------------------------

    def _across(self, found: list[list[Literal]]) -> list[dict[int, list[_Edit]]]:
        """Return the parts of matches that only the joined literals of a stream show, for each line and each literal in
        the line."""
        edits: list[dict[int, list[_Edit]]] = [{} for _ in found]
        for places in _streams(found):
            joined = "".join(found[line][at].text for line, at in places)
            spans = [(span, MASK, True) for span in self._secrets.spans(joined)]
            spans += [((start, end), name, False) for start, end, name in self._named(joined)]
            if spans:
                _share_out(places, found, sorted(spans), edits)
        return edits


def _streams(found: list[list[Literal]]) -> list[list[tuple[int, int]]]:
    """Return groups of literals that may be pieces of one text: literals of the same path, and literals of the same path
    and ids."""
    streams: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, line in enumerate(found):
        ids = tuple(one.text for one in line if one.path and _ID.search(one.path[-1]))
        for at, literal in enumerate(line):
            if literal.path and not _NO_TEXT.search(_key(literal.path)):
                streams[literal.path,].append((number, at))
                streams[literal.path, ids].append((number, at))
    unlike = {tuple(places) for places in streams.values() if len(places) > 1}
    return [list(places) for places in sorted(unlike)]


def _key(path: Path) -> str:
    return next((part for part in reversed(path) if part != "[]"), "")


def _share_out(
    places: list[tuple[int, int]],
    found: list[list[Literal]],
    spans: list[tuple[Span, str, bool]],
    edits: list[dict[int, list[_Edit]]],
) -> None:
    """Give each literal a part of the spans that cross literals. The first part gets the text."""
    begins, at = 0, 0
    for line, number in places:
        length = len(found[line][number].text)
        while at < len(spans) and spans[at][0][1] <= begins:
            at += 1
        for (start, end), text, secret in islice(spans, at, None):
            if start >= begins + length:
                break
            if start >= begins and end <= begins + length:
                continue  # this match lies within one literal, and the search in that literal finds it
            part = _Edit(max(0, start - begins), min(length, end - begins), text if start >= begins else "", secret)
            if part.end > part.start:
                edits[line].setdefault(number, []).append(part)
        begins += length


def _merged(edits: list[_Edit]) -> list[_Edit]:
    """Return the edits without overlaps. Secrets go before names, and overlapping secrets become a single secret."""
    merged: list[_Edit] = []
    for edit in sorted(edits, key=lambda e: (not e.secret, e.start, e.end)):
        last = merged[-1] if merged else None
        if last is not None and last.secret and edit.secret and edit.start < last.end:
            merged[-1] = last._replace(end=max(last.end, edit.end))
        elif not any(edit.start < other.end and other.start < edit.end for other in merged):
            merged.append(edit)
    return sorted(merged)


def _summed(lengths: dict[int, int], old_size: int) -> dict[int, int]:
    moved, total = {0: 0}, 0
    for old, length in lengths.items():
        total += length
        moved[min(old, old_size)] = total
    if lengths:  # the last piece has no newline behind it
        moved[old_size] = total - 1
    return moved


def machine_names(*, home: str, user: str, host: str, state_dir: str = "") -> dict[str, str]:
    """Return the names of a machine and its user, with replacements for a recording. Common names are left out.

    The result also holds paths as slugs with dashes for slashes, as in claude's projects.
    """
    names: dict[str, str] = {}
    for path, stable in ((home.rstrip("/"), "/home/user"), (state_dir.rstrip("/"), "/state")):
        if path:
            names[path] = stable
        if path.count("/") > 1:  # `-root` would be a flag
            names[re.sub("[^A-Za-z0-9]", "-", path)] = stable.replace("/", "-")
    if len(user) >= _SHORTEST_NAME and user not in _COMMON_USERS:
        names[user] = "user"
    for name in {host, host.partition(".")[0]}:
        if len(name) >= _SHORTEST_NAME and name not in _COMMON_HOSTS:
            names[name] = "host"
    return names

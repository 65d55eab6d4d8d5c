"""Lines of a batch: read, checked whole before the first prompt, and turned into requests with ids of their own.

A session id follows from the batch's name, the line and the attempt. A batch that is started again finds its sessions by it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO

from clisup.cli.failure import usage
from clisup.client.options import given
from clisup.client.raw import JsonObject

__all__ = ["MAX_LINES", "MAX_LINE_BYTES", "MAX_PROBLEMS", "BatchLine", "BatchLines", "LineDefaults", "read_lines"]

MAX_LINES = 100_000
"""Lines of one batch at most."""

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Bytes of one line at most."""

MAX_PROBLEMS = 10
"""Bad lines that an error lists at most."""

MAX_NAME = 200
MAX_TIMEOUT = 31_536_000

_NAMESPACE = uuid.UUID("6c7b6a35-3b43-4f0e-9f0c-6f1d3a5b8e21")
_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "prompt": (str, "a string"),
    "key": (str, "a string"),
    "cwd": (str, "a string"),
    "backend": (str, "a string"),
    "model": (str, "a string"),
    "permission_mode": (str, "a string"),
    "mode": (str, '"one-shot" or "live"'),
    "system_prompt": (str, "a string"),
    "mcp_config": (dict, "an object"),
    "output_schema": (dict, "an object"),
    "expand": (bool, "true or false"),
    "title": (str, "a string"),
    "labels": (dict, "an object of strings"),
    "budget": (dict, "an object"),
    "timeout": ((int, float), "a number of seconds"),
}
"""Members of a line: the type and its name."""

_SESSION = ("backend", "cwd", "model", "permission_mode", "mode", "system_prompt", "mcp_config")
_PROMPT = ("prompt", "output_schema", "expand")
_IDENTITY = (*_SESSION, *_PROMPT)
"""Members that make a line another line. Labels, a title, a budget and a time limit may change between two starts."""


class _Bad(Exception):
    """Reason why a line cannot be used."""


@dataclass(frozen=True, kw_only=True)
class LineDefaults:
    """Options of the command, for lines that do not say otherwise. With `prompt`, a line of plain text is a directory."""

    name: str
    directory: str
    prompt: str | None = None
    members: JsonObject = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    unattended: str | None = None


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One line: its number in the file, its key if it has one, and its requests."""

    number: int
    key: str | None
    identity: str
    batch: str
    session: JsonObject
    prompt: JsonObject

    def session_id(self, attempt: int) -> str:
        """Return the id of the session of an attempt, 1 or more. It is the key of the prompt, too."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.batch}\n{self.identity}\n{attempt}"))


class BatchLines:
    """Checked lines of a batch, in a file without a name. Each iteration reads them from the beginning."""

    def __init__(self, file: IO[bytes], defaults: LineDefaults, digest: str) -> None:
        self._file, self._defaults = file, defaults
        self.digest = digest
        self.total = 0
        self.backends: dict[str, int] = {}
        """Number of the first line that names each backend."""

    def __iter__(self) -> Iterator[BatchLine]:
        self._file.seek(0)
        seen: Counter[str] = Counter()
        for number, line in enumerate(self._file, 1):
            if line.strip():
                yield _item(number, line, self._defaults, seen)

    def check(self) -> list[str]:
        """Return what is wrong with the lines, by number. Stop at `MAX_PROBLEMS`."""
        self._file.seek(0)
        problems: list[str] = []
        seen: Counter[str] = Counter()
        keys: set[str] = set()
        for number, line in enumerate(self._file, 1):
            if not line.strip():
                continue
            self.total += 1
            try:
                item = _item(number, line, self._defaults, seen)
                if item.key is not None and item.identity in keys:
                    raise _Bad(f"the key {item.key!r} is that of an earlier line")
                if item.key is not None:
                    keys.add(item.identity)
                if "backend" in item.session:
                    self.backends.setdefault(item.session["backend"], number)
            except _Bad as bad:
                problems.append(f"line {number}: {bad}")
            if len(problems) == MAX_PROBLEMS:
                break
        return problems

    @property
    def name(self) -> str:
        """Name of the batch."""
        return self._defaults.name

    def rename(self, name: str) -> None:
        """Set the batch's name."""
        self._defaults = LineDefaults(**{**vars(self._defaults), "name": name})


@contextmanager
def read_lines(source: BinaryIO, defaults: LineDefaults) -> Iterator[BatchLines]:
    """Copy the lines of `source`, so that they stay as they were checked. Raises `UsageError` for a file that is too long."""
    with tempfile.TemporaryFile() as copy:
        yield BatchLines(copy, defaults, _copied(source, copy))


def _copied(source: BinaryIO, copy: IO[bytes]) -> str:
    """Copy the lines and return their digest."""
    digest, number = hashlib.sha256(), 0
    try:
        while line := source.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise usage(f"cannot use line {number}, because it has more than {MAX_LINE_BYTES} bytes")
            if number > MAX_LINES:
                raise usage(
                    f"cannot use the batch, because it has more than {MAX_LINES} lines", hint="split it into several"
                )
            digest.update(line)
            copy.write(line)
    except OSError as error:
        raise usage(f"cannot read the batch, because {error.strerror or error}") from None
    return digest.hexdigest()


# -- one line -----------------------------------------------------------------------------------------------------------


def _item(number: int, line: bytes, defaults: LineDefaults, seen: Counter[str]) -> BatchLine:
    members = {**defaults.members, **_members(line, defaults)}
    members["cwd"] = os.path.normpath(os.path.join(defaults.directory, members.get("cwd") or "."))
    if not str(members.get("prompt") or "").strip():
        raise _Bad("it has no prompt" if members.get("prompt") is None else "its prompt is empty")
    identity = _identity(members, seen)
    return BatchLine(number, members.get("key"), identity, defaults.name, _session(members, defaults), _prompt(members))


def _members(line: bytes, defaults: LineDefaults) -> JsonObject:
    """Return the members of a line: an object, a prompt, or with `defaults.prompt` a directory."""
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise _Bad("it is not UTF-8") from None
    common = {} if defaults.prompt is None else {"prompt": defaults.prompt}
    value: Any = text
    if text[:1] in ("{", "[", '"'):
        value = _json(text)
    if isinstance(value, str):
        return {"prompt": value} if defaults.prompt is None else {**common, "cwd": value}
    if not isinstance(value, dict):
        raise _Bad("it is neither a JSON object nor a string")
    members = given(value)
    for name, member in members.items():
        _check(name, member)
    return {**common, **members}


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise _Bad("a text in it holds half of a surrogate pair") from None
    except RecursionError:
        raise _Bad("it is nested too deeply") from None
    except ValueError as error:
        raise _Bad(f"it is not JSON: {error}") from None
    return value


def _check(name: str, value: Any) -> None:
    if name not in _TYPES:
        near = difflib.get_close_matches(name, _TYPES, n=1)
        raise _Bad(f"it has an unknown member {name!r}" + (f" (did you mean {near[0]}?)" if near else ""))
    type_, words = _TYPES[name]
    wrong = not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool)
    if name == "mode":
        wrong = value not in ("one-shot", "live")
    elif name == "labels" and not wrong:
        wrong = not all(isinstance(label, str) for label in value.values())
    elif name == "key" and not wrong and not 0 < len(value) <= MAX_NAME:
        raise _Bad(f"its key has {len(value)} characters: give 1 to {MAX_NAME}")
    elif name == "timeout" and not wrong and not (math.isfinite(value) and 0 < value <= MAX_TIMEOUT):
        raise _Bad(f"its timeout {value} is not above 0 and at most {MAX_TIMEOUT}")
    if wrong:
        raise _Bad(f"its {name} is not {words}")


def _identity(members: JsonObject, seen: Counter[str]) -> str:
    """Return what names the line in its batch: its key, or its content and how many equal lines stand above."""
    if members.get("key") is not None:
        return "key " + hashlib.sha256(members["key"].encode()).hexdigest()
    what = json.dumps({name: members.get(name) for name in _IDENTITY}, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(what.encode()).hexdigest()
    seen[digest] += 1
    return f"line {digest} {seen[digest]}"


def _session(members: JsonObject, defaults: LineDefaults) -> JsonObject:
    """Return the params of `session/new`, without the id."""
    more = {
        "labels": {"batch": defaults.name, **defaults.labels, **members.get("labels", {})},
        "budget": members.get("budget"),
        "title": members.get("title"),
        "approvals": None if defaults.unattended is None else {"unattended": defaults.unattended},
    }
    return given({**{name: members.get(name) for name in _SESSION}, **more})


def _prompt(members: JsonObject) -> JsonObject:
    """Return the params of `session/prompt`, without the session and the key."""
    timeout = members.get("timeout")
    limit = None if timeout is None else float(timeout)
    return given({**{name: members.get(name) for name in _PROMPT}, "timeout_s": limit})

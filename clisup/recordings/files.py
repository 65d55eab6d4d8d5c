"""The files of a recording: `<name>.jsonl` (stdout), `<name>.meta.json`, and `<name>.events.jsonl` (what a decoder made of it)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from clisup.backends.recording import Recording, parse_recording
from clisup.backends.registry import kinds
from clisup.errors import UsageError, WorldError
from clisup.model.events import EventBase

__all__ = ["LARGEST", "Files", "event_line", "files_of", "read_recording", "write_recording"]

LARGEST = 64 * 1024 * 1024
"""Bytes of stdout (and of the meta file) that a recording may have: it is held in memory as a whole."""


class Files(NamedTuple):
    """Where the parts of one recording are."""

    out: Path
    meta: Path
    events: Path


def files_of(path: str | Path) -> Files:
    """The three files, from the name of the first. Raises `UsageError(usage)` where that does not end in .jsonl."""
    out = Path(path)
    if out.suffix != ".jsonl" or out.name.endswith(".events.jsonl"):
        raise UsageError(
            f"cannot take {out} for a recording, because its name does not end as one",
            kind="usage",
            hint="name the file with the CLI's output, such as claude-2.1.329-t1.jsonl",
        )
    return Files(out, out.with_suffix(".meta.json"), out.with_suffix(".events.jsonl"))


def read_recording(path: str | Path, kind: str | None = None) -> Recording:
    """Read a recording. Its kind is that of its meta file, else `kind`, else the folder two levels up that is named so.

    Raises `UsageError(usage)` where the files are missing or no recording, `UsageError(unsupported)` for a later format.
    """
    files = files_of(path)
    above = files.out.resolve().parent.parent.name
    guess = kind or (above if above in kinds() else None)
    return parse_recording(_read(files.out), _read(files.meta), name=str(files.out), kind=guess)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        hint = "each recording is a .jsonl with its .meta.json beside it; clisup record makes both"
        raise UsageError(f"cannot read {path}, because of: {error.strerror}", kind="usage", hint=hint) from None
    if len(data) > LARGEST:
        hint = "record a smaller turn"
        raise UsageError(
            f"cannot read {path}, because it has more than {LARGEST} bytes", kind="limit_exceeded", hint=hint
        )
    return data


def write_recording(
    files: Files, data: bytes, meta: dict[str, Any], events: Sequence[EventBase], *, force: bool
) -> None:
    """Write all three. Raises `UsageError(usage)` where one is there already and `force` is not given."""
    for path in files:
        if not force and path.exists():
            raise UsageError(
                f"cannot write {path}, because it is there already", kind="usage", hint="--force writes over it"
            )
    _write(files.events, "".join(event_line(event) + "\n" for event in events).encode())
    _write(files.meta, (json.dumps(meta, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
    _write(files.out, data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.unlink(missing_ok=True)  # one that is there keeps its mode, and a link leads elsewhere
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise WorldError(
            f"cannot write {path}, because of: {error.strerror}",
            kind="storage_failed",
            hint="name another file with -o, in a directory that is there",
        ) from None


def event_line(event: EventBase) -> str:
    """An event model as one line of JSON, without what is not known."""
    return json.dumps(msgspec.to_builtins(event), ensure_ascii=False, separators=(",", ":"))

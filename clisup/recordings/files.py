"""Files of a recording: `<name>.jsonl` (stdout), `<name>.meta.json`, and `<name>.events.jsonl` (the decoder's events)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from clisup.backends.recording import TurnRecording, parse_recording, play
from clisup.backends.registry import get_adapter, is_kind
from clisup.errors import ConfigurationError, UsageError, WorldError
from clisup.model.events import EventBase

__all__ = [
    "LARGEST", "RecordingFiles", "ReplayedStep", "read_recording", "recording_files", "replay", "saved_events",
    "write_recording",
]  # fmt: skip

LARGEST = 64 * 1024 * 1024
"""Limit of stdout (and of the meta file) in bytes. A recording is held in memory as a whole."""


class RecordingFiles(NamedTuple):
    """Paths of the files of one recording."""

    out: Path
    meta: Path
    events: Path


def recording_files(path: str | Path) -> RecordingFiles:
    """Return the three files from the name of the first. Raises `UsageError(usage)` for a name that does not end in .jsonl."""
    out = Path(path)
    if out.suffix != ".jsonl" or out.name.endswith(".events.jsonl"):
        raise UsageError(
            f"{out} is not the name of a recording: the name must end in .jsonl",
            kind="usage",
            hint="name the file with the CLI's output, such as claude-2.1.329-t1.jsonl",
        )
    return RecordingFiles(out, out.with_suffix(".meta.json"), out.with_suffix(".events.jsonl"))


def read_recording(path: str | Path, kind: str | None = None) -> TurnRecording:
    """Read a recording. Its kind is in the meta file, else `kind`, else the name of the folder two levels up.

    Raises `UsageError(usage)` for missing or wrong files, `UsageError(unsupported)` for a later format.
    """
    files = recording_files(path)
    folder = files.out.resolve().parent.parent.name
    guess = kind or (folder if is_kind(folder) else None)
    return parse_recording(_read(files.out), _read(files.meta), name=str(files.out), kind=guess)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        hint = "each recording is a .jsonl with its .meta.json beside it; clisup record makes both"
        raise UsageError(f"cannot read {path}: {error.strerror}", kind="usage", hint=hint) from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{path} is too large: {LARGEST} bytes are the limit", kind="limit_exceeded", hint="record a smaller turn"
        )
    return data


def write_recording(
    files: RecordingFiles, data: bytes, meta: dict[str, Any], events: Sequence[EventBase], *, force: bool
) -> None:
    """Write the three files. Raises `UsageError(usage)` if one of them exists, without `force`."""
    for path in files:
        if not force and path.exists():
            raise UsageError(f"{path} already exists", kind="usage", hint="--force replaces it")
    _write(files.events, "".join(_event_line(event) + "\n" for event in events).encode())
    _write(files.meta, (json.dumps(meta, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
    _write(files.out, data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.unlink(missing_ok=True)  # an existing file keeps its mode, and a link leads elsewhere
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise WorldError(
            f"cannot write {path}: {error.strerror}",
            kind="storage_failed",
            hint="name another file with -o, in an existing directory",
        ) from None


def _event_line(event: EventBase) -> str:
    return json.dumps(msgspec.to_builtins(event), ensure_ascii=False, separators=(",", ":"))


class ReplayedStep(NamedTuple):
    """Event with its line of JSON, or a reply of the decoder for the CLI's stdin (`event` is None). `at` is in seconds."""

    at: float | None
    event: dict[str, Any] | None
    line: str


def replay(path: str, kind: str | None) -> list[ReplayedStep]:
    """Decode a recording with the decoder of today. Raises `UsageError`."""
    recording = read_recording(path, kind)
    try:
        adapter = get_adapter(recording.kind)
    except ConfigurationError as error:
        raise UsageError(error.message, kind="usage", hint=error.hint) from None
    steps: list[ReplayedStep] = []
    for played in play(recording, adapter):
        # A line had come at the first moment at which its end, or a later one, was there.
        end = played.line.end if played.line else None
        at = recording.meta.duration_s if end is None else next((t for o, t in recording.meta.timing if o >= end), None)
        steps += [ReplayedStep(at, msgspec.to_builtins(event), _event_line(event)) for event in played.events]
        steps += [
            ReplayedStep(at, None, reply if isinstance(reply, str) else "[end of input]")
            for reply in played.decoded.replies
        ]
    return steps


def saved_events(path: str) -> list[str]:
    """Return the lines of the events file beside a recording. Raises `UsageError(usage)`."""
    events = recording_files(path).events
    try:
        return events.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"cannot compare {path}: {events} cannot be read ({reason})",
            kind="usage",
            hint=f"make it: clisup replay --json {path} > {events}",
        ) from None

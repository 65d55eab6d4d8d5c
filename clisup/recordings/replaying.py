"""A recording's events, as the decoder of today makes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from clisup.backends.recording import Recording, play
from clisup.backends.registry import get_adapter
from clisup.errors import ConfigurationError, UsageError
from clisup.model.events import EventBase
from clisup.recordings.files import event_line, files_of, read_recording

__all__ = ["Step", "replay", "saved_events"]


class Step(NamedTuple):
    """One event, with its line of JSON; or, without an event, what the decoder would say to the CLI. `at` is in seconds."""

    at: float | None
    event: dict[str, Any] | None
    line: str


def replay(path: str, kind: str | None) -> list[Step]:
    """Decode a recording. Raises `UsageError` where it is none, or of a kind that is not there."""
    recording = read_recording(path, kind)
    try:
        adapter = get_adapter(recording.kind)
    except ConfigurationError as error:
        raise UsageError(error.message, kind="usage", hint=error.hint) from None
    steps: list[Step] = []
    for played in play(recording, adapter):
        at = _time(recording, played.line.end) if played.line else recording.meta.duration_s
        steps += [_step(at, event) for event in played.events]
        for reply in played.decoded.replies:
            steps.append(Step(at, None, reply if isinstance(reply, str) else "[end of input]"))
    return steps


def _step(at: float | None, event: EventBase) -> Step:
    return Step(at, msgspec.to_builtins(event), event_line(event))


def _time(recording: Recording, end: int) -> float | None:
    """When the line that ends there had come: the first moment at which it, or a later one, was there."""
    return next((at for offset, at in recording.meta.timing if offset >= end), None)


def saved_events(path: str) -> list[str]:
    """The lines of the events file beside a recording. Raises `UsageError(usage)` where there is none."""
    events = files_of(path).events
    try:
        return events.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"cannot compare {path}, because {events} cannot be read: {reason}",
            kind="usage",
            hint=f"make it: clisup replay --json {path} > {events}",
        ) from None

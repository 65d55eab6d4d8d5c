"""Lines of a CLI's stdout as JSON objects, and `unparsed` for all other lines. Common to the decoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from clisup.backends.base import Decoded
from clisup.backends.frames import Frame, MalformedError, decode_any, excerpt, mend, too_deep
from clisup.model.events import Unparsed
from clisup.model.lines.framing import Line

__all__ = ["NOTHING", "decode_frame", "read_frame", "unparsed"]

NOTHING = Decoded(())
Reason = Literal["malformed", "unknown_type", "oversize", "truncated"]


def read_frame(line: Line) -> Frame | Decoded:
    """Return the object of a line, with repaired characters if needed, or the events for a line without an object."""
    if line.oversize:
        return unparsed(line, "oversize")
    if not line.data.strip():
        return NOTHING  # an empty line gives no event
    for data in (line.data, mend(line.data)):
        try:
            frame = decode_any(data)
        except (ValueError, RecursionError):
            continue
        good = isinstance(frame, dict) and not too_deep(data, frame)
        return frame if good and isinstance(frame, dict) else unparsed(line, "malformed")
    return unparsed(line, "malformed" if line.complete else "truncated")


def decode_frame(line: Line, decode: Callable[[Frame], Decoded | None]) -> Decoded:
    """Decode a line by `decode`, which returns None for an unknown type, and may raise for an unexpected shape."""
    frame = read_frame(line)
    if isinstance(frame, Decoded):
        return frame
    try:
        decoded = decode(frame)
    except (MalformedError, ValueError, TypeError):
        return unparsed(line, "malformed")
    return unparsed(line, "unknown_type") if decoded is None else decoded


def unparsed(line: Line, reason: Reason) -> Decoded:
    """Return the `unparsed` event of a line."""
    size = line.end - line.start if line.oversize else line.size
    return Decoded((Unparsed(reason=reason, bytes=size, excerpt=excerpt(line.data)),))

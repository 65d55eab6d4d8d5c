"""Lines of a CLI's stdout as JSON objects, and `unparsed` for all other lines. Common to the decoders."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from clisup.backends.base import Decoded, Decoder
from clisup.backends.frames import Frame, MalformedError, decode_any, excerpt, mend, too_deep
from clisup.model.events import Unparsed
from clisup.model.lines.framing import Line

__all__ = ["NOTHING", "FrameDecoder", "read_frame", "unparsed"]

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


def unparsed(line: Line, reason: Reason) -> Decoded:
    """Return the `unparsed` event of a line."""
    size = line.end - line.start if line.oversize else line.size
    return Decoded((Unparsed(reason=reason, bytes=size, excerpt=excerpt(line.data)),))


class FrameDecoder(Decoder):
    """Decoder of lines that are JSON objects. All other lines become `unparsed`."""

    def decode(self, line: Line) -> Decoded:
        """Decode one line: its events, its replies, and the end of the turn. The method never raises."""
        frame = read_frame(line)
        if isinstance(frame, Decoded):
            return frame
        try:
            decoded = self.decode_frame(frame, line)
        except (MalformedError, ValueError, TypeError):
            return unparsed(line, "malformed")
        return unparsed(line, "unknown_type") if decoded is None else decoded

    @abstractmethod
    def decode_frame(self, frame: Frame, line: Line) -> Decoded | None:
        """Decode a frame. Return None for an unknown type.

        An unexpected shape may raise `MalformedError`, `ValueError` or `TypeError`.
        """

"""Lines of a CLI's stdout as JSON objects, and `unparsed` for all other lines. Common to the decoders."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from clisup.backends.base import Decoded, Decoder
from clisup.backends.frames import Frame, MalformedError, decode_any, excerpt, mend, too_deep
from clisup.model.events import Unparsed
from clisup.model.lines.framing import Line

__all__ = ["NOTHING", "FrameDecoder", "decode_broken", "read_frame", "unparsed"]

NOTHING = Decoded(())
_SEARCHED = 1024 * 1024
"""Largest line in characters that is searched for objects between other words."""
_TRIES = 32
"""Places of a line at which an object may begin."""
_MOST_PIECES = 64
_TERMINAL = re.compile(
    r"(?:\s|\ufeff|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b[()][0-9A-Za-z]|\x1b[=>78cDEHMNOZ])*"
)
"""Blanks, byte order marks and terminal sequences: titles, colours, modes, resets."""
_FRAME = re.compile(r'\{\s*"(?:[^"\\]|\\.){0,200}"\s*:')
"""Beginning of a frame, in contrast to a brace in other words."""
_read_object = json.JSONDecoder().raw_decode
Reason = Literal["malformed", "unknown_type", "oversize", "truncated"]


def read_frame(line: Line) -> Frame | Decoded | None:
    """Return the object of a line, with repaired characters if needed, or the events for a line without an object.

    Return None for a line that is no JSON, which `decode_broken` may decode.
    """
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
    return None


def decode_broken(line: Line, decode: Callable[[Line], Decoded]) -> Decoded:
    """Decode the objects of a line that is no JSON as a whole, each by `decode`; other words become `unparsed`.

    Launchers, shells and CLIs write terminal sequences and byte order marks around a frame, words without a newline before or
    behind it, and two frames on one line (opencode #17282, codex-plugin-cc #23, npm/cli #7354). The objects must reach the end
    of the line, so an object inside a damaged frame never counts.
    """
    words, objects, behind = _cut(mend(line.data).decode("utf-8", "replace")) if line.complete else ("", [], "")
    if not objects:
        return unparsed(line, "malformed" if line.complete else "truncated")
    whole = Decoded(())
    for text in (words, *objects, behind):
        if text:
            piece = replace(line, data=text.encode("utf-8", "replace"))
            one = decode(piece) if text in objects else unparsed(piece, "malformed")
            whole = Decoded(
                (*whole.events, *one.events),
                one.terminal or whole.terminal,
                (*whole.replies, *one.replies),
                (*whole.answers, *one.answers),
            )
    return whole


def _cut(text: str) -> tuple[str, list[str], str]:
    """Return the words before the objects at the end of a line, the objects, and the words behind them."""
    start = text.find("{")
    for _ in range(_TRIES if len(text) <= _SEARCHED else 1):
        if start < 0:
            break
        objects, end = _objects(text, start)
        behind = text[end:]
        if objects and not behind.startswith(("}", "]", ",", ":", '"')) and "{" not in behind:
            return _plain(text[:start]), objects, _plain(behind)
        if not objects and _FRAME.match(text, start):
            break  # a damaged frame
        start = text.find("{", start + 1)
    return "", [], ""


def _objects(text: str, at: int) -> tuple[list[str], int]:
    """Return the objects that follow each other from `at` on, and the end of the last one with what is no word behind it."""
    objects: list[str] = []
    while len(objects) < _MOST_PIECES and text.startswith("{", at):
        try:
            _, end = _read_object(text, at)
            decode_any(text[at:end].encode())
        except (ValueError, RecursionError):
            break
        objects.append(text[at:end])
        at = _skip(text, end)
    return objects, at


def _skip(text: str, at: int) -> int:
    """Return the end of blanks and terminal sequences from `at` on."""
    found = _TERMINAL.match(text, at)
    return found.end() if found else at


def _plain(text: str) -> str:
    """Return words without blanks and terminal sequences; "" if there are no words."""
    return "" if _skip(text, 0) == len(text) else text.strip()


def unparsed(line: Line, reason: Reason) -> Decoded:
    """Return the `unparsed` event of a line."""
    size = line.end - line.start if line.oversize else line.size
    return Decoded((Unparsed(reason=reason, bytes=size, excerpt=excerpt(line.data)),))


class FrameDecoder(Decoder):
    """Decoder of lines that are JSON objects. All other lines become `unparsed`."""

    def decode(self, line: Line) -> Decoded:
        """Decode one line: its events, its replies, and the end of the turn. The method never raises."""
        frame = read_frame(line)
        if frame is None:
            return decode_broken(line, self.decode)
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

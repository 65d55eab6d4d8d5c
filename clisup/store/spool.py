"""Spool of a run: the bytes that a CLI wrote, stored by its keeper alone. Reads never block or pass the end.

`native_parts` finds the CLI's own line of an event.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator, Sequence

from clisup.errors import WorldError
from clisup.host.failpoints import ARMED, failpoint
from clisup.host.files import open_regular, storage_error
from clisup.model.journal import Source
from clisup.model.lines.long_line import SLICE
from clisup.store.session_dir import SessionDir

__all__ = [
    "SpoolFile",
    "ends_text",
    "is_end_of_line",
    "native_parts",
    "read_range",
    "spool_size",
    "tail_text",
    "with_parts",
]

READ_CHUNK = 64 * 1024  # about a hundred lines, and a millisecond of work: other tasks wait for it


class SpoolFile:
    """Spool, read from an offset on. A missing spool counts as empty."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self._path = path
        self._fd: int | None = None
        self.offset = offset
        self.at_end = True
        """True if the last read reached the end of the spool. The keeper announces bytes written after that."""

    def read(self) -> bytes:
        """Return the next bytes, up to `READ_CHUNK`, or b"" if there are none now.

        Raises `WorldError(storage_failed)`.
        """
        try:
            if self._fd is None:
                self._fd = open_regular(self._path)
            if ARMED:
                failpoint("spool.read")
            chunk = os.pread(self._fd, READ_CHUNK, self.offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error("read", self._path, error) from None
        self.offset += len(chunk)
        self.at_end = len(chunk) < READ_CHUNK
        return chunk

    def close(self) -> None:
        """Close the file. A second call is safe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def spool_size(path: str) -> int:
    """Return the size of the spool in bytes, or 0 if the spool is missing."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def is_end_of_line(path: str, place: int) -> bool:
    """Tell whether a line ends at this place of the spool. The beginning of the spool counts. Raises `OSError`."""
    if place <= 0:
        return place == 0
    fd = open_regular(path)
    try:
        return place < 2**63 and os.pread(fd, 1, place - 1) == b"\n"
    finally:
        os.close(fd)


def read_range(path: str, start: int, length: int) -> bytes:
    """Return `length` bytes from `start`, fewer at the end, or b"" if the file is gone.

    Raises `WorldError(storage_failed)`.
    """
    try:
        fd = open_regular(path)
        try:
            failpoint("spool.range")
            return os.pread(fd, length, start)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise storage_error("read", path, error) from None


def tail_text(path: str, limit: int = 4096) -> str:
    """Return the last `limit` bytes as text, from the start of a line if possible. Return "" if they cannot be read."""
    try:
        size = spool_size(path)
        data = read_range(path, max(0, size - limit), limit)
    except (OSError, WorldError):
        return ""
    return (_from_line(data) if size > limit else data).decode("utf-8", "replace")


def ends_text(path: str, begin: int = 0, end: int | None = None, *, head: int = 1024, tail: int = 4096) -> str:
    """Return the first `head` and the last `tail` bytes of a range as text, whole lines if possible.

    A range that is not longer is returned completely. Return "" if the range cannot be read.
    """
    try:
        end = spool_size(path) if end is None else end
        left_out = end - begin - head - tail
        if left_out <= 0:
            return read_range(path, begin, max(0, end - begin)).decode("utf-8", "replace")
        first, last = read_range(path, begin, head), read_range(path, end - tail, tail)
    except (OSError, WorldError):
        return ""
    ends = first[: first.rfind(b"\n") + 1] or first, _from_line(last)
    return f"\n[clisup: about {left_out} bytes left out]\n".join(part.decode("utf-8", "replace") for part in ends)


def _from_line(data: bytes) -> bytes:
    """Drop the end of a line that began earlier. A last line longer than the data is cut, not dropped."""
    first = data.find(b"\n") + 1
    return data[first:] if 0 < first < len(data) else data


def native_parts(source: Source | None, directory: SessionDir) -> Iterator[bytes]:
    """Yield the CLI's own line of an event from this source, in slices, as the inside of a JSON string.

    Yield nothing for the daemon's own events and for lines that are gone. Bytes that are not UTF-8 become U+FFFD,
    wherever a slice is cut.
    """
    if source is None:
        return
    run = directory.run(source.run)
    path = run.out if source.spool == "out" else run.err
    decoder, start = codecs.getincrementaldecoder("utf-8")("replace"), source.start
    while start < source.end:
        data = read_range(path, start, min(SLICE, source.end - start))
        start = start + len(data) if data else source.end  # the rest of a removed line is gone
        yield json.dumps(decoder.decode(data.rstrip(b"\n"), final=start >= source.end))[1:-1].encode()


def with_parts(event: bytes, parts: Sequence[bytes]) -> bytes:
    """Return the envelope with `native`."""
    return b"".join((event[:-1], b',"native":"', *parts, b'"}')) if any(parts) else event

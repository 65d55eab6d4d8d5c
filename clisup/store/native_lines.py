"""Lines of the CLI itself that belong to events, read from a spool."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence

from clisup.model.journal import read_lines
from clisup.model.lines.long_line import SLICE
from clisup.store.session_dir import SessionDir
from clisup.store.spool import read_range

__all__ = ["native_parts", "with_parts"]


def native_parts(line: bytes, directory: SessionDir) -> Iterator[bytes]:
    """Yield the CLI's own line of this journal line's event, in slices, as the inside of a JSON string.

    Yield nothing for the daemon's own events and for lines that are gone. Bytes that are not UTF-8 become U+FFFD,
    wherever a slice is cut.
    """
    source = read_lines(line + b"\n")[0].src
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

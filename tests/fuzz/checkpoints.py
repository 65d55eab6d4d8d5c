"""Checkpoints with changed values, and what their decoders then make of the rest of a recording."""

from __future__ import annotations

import json
import zlib
from functools import cache
from typing import Any

import msgspec

from clisup.backends.base import Decoder
from clisup.daemon.runs.checkpoint import CheckpointRefusedError, pack, unpack
from tests.backends.recorded import PATHS, Recording, name_of
from tests.checkpoints import RUN, checkpoint_with
from tests.fuzz.promises import promise, strict_json

__all__ = ["CASES", "bodies", "checkpoint"]

CASES = tuple(
    path for path in PATHS if path.stem in ("tool_ok", "approved", "background", "question", "cut_mid_stream")
)
"""Recordings with tools, requests, background work and broken streams, of every CLI."""
_EVERY = 5  # lines from one checkpoint of a recording to the next
_HEAD = 18


@cache
def _recording(case: int) -> Recording:
    return Recording(CASES[case])


def _decoder(case: int) -> Decoder:
    recording = _recording(case)
    return recording.adapter.decoder(recording.carried, recording.request)


@cache
def bodies() -> tuple[bytes, ...]:
    """Return checkpoints in the middle of the recordings. `case` names the recording: a reader ignores unknown fields."""
    found = []
    for case, path in enumerate(CASES):
        decoder = _decoder(case)
        for at, line in enumerate(_recording(case).lines()):
            decoder.decode(line)
            data = pack(checkpoint_with(decoder.state), RUN) if at % _EVERY == 0 else None
            if data is not None:
                found.append(json.dumps({"case": case, **json.loads(data[_HEAD:])}).encode())
        assert found, name_of(path)
    return tuple(found)


def checkpoint(data: bytes, salt: int) -> None:
    """Target: a checkpoint of a process of the CLI is refused, or a decoder goes on from it without an exception."""
    body = data.split(b"\n", 1)[0]
    case = _case(body, salt)
    decoder = _decoder(case)
    try:
        found = unpack(b"%08x %08x\n" % (len(body), zlib.crc32(body)) + body, RUN, type(decoder.state))  # type: ignore[arg-type]
    except CheckpointRefusedError:
        return
    decoder.restore(found.decoder)
    assert found.tracker is not None
    lines = _recording(case).lines()
    for line in lines[salt % (len(lines) + 1) :]:
        decoded = decoder.decode(line)
        for event in decoded.events:
            strict_json(msgspec.json.encode(event))
            found.tracker.see(event)
        if decoded.terminal is not None:
            strict_json(msgspec.json.encode(decoded.terminal))
        promise(all(not isinstance(text, str) or text.endswith("\n") for text in decoded.replies), "replies are lines")
        found.tracker.background = decoder.background
        promise(bool(found.tracker.phase), "the turn has a phase")
    decoder.interrupt()


def _case(body: bytes, salt: int) -> int:
    try:
        value: Any = json.loads(body)["case"]
        return value if type(value) is int and 0 <= value < len(CASES) else salt % len(CASES)
    except (ValueError, LookupError, TypeError, RecursionError):
        return salt % len(CASES)

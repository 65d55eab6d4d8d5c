"""Checkpoint of a run in the middle of a turn: the state of its decoder at a place of the spools.

The next daemon decodes the output after this place. Without a checkpoint it decodes the whole turn again. A process of the
CLI can write the file, so the file is data with fixed types, and each value is checked. Only the same code reads a
checkpoint: other code may decode in another way.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

import clisup
from clisup.backends.base import Decoder
from clisup.backends.frames import LARGEST as LARGEST_COUNT
from clisup.backends.frames import MAX_DEPTH
from clisup.host.files import read_file
from clisup.model.lines.json_values import has_larger_number, is_deeper
from clisup.model.sessions.ledger import Position, TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace
from clisup.policy.watchdog import PhaseTracker
from clisup.store.session_dir import RunDir
from clisup.store.spool import is_end_of_line

__all__ = ["CHECKPOINT_BYTES", "LARGEST", "Checkpoint", "CheckpointRefusedError", "Checkpoints", "pack", "unpack"]

CHECKPOINT_BYTES = 256 * 1024
"""Bytes of stdout between two checkpoints. To decode them again takes about 5 ms."""
LARGEST = 1024 * 1024
"""Largest checkpoint in bytes. A decoder with a larger state keeps its last checkpoint."""
SHARE = 16
"""Bytes of stdout for each byte of a checkpoint, so that a large state is written less often."""
FORMAT = 2
"""Number of the format. Format 1 was a pickle."""
_HEAD = 18  # of a file: the size and the checksum of the rest, in hexadecimal digits
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CODE_PARTS = ("backends", "daemon/runs", "model", "policy")


def _code() -> str:
    """Return a digest that changes with the code that a checkpoint depends on: names, sizes and times of its files."""
    digest = hashlib.sha256(f"{clisup.__version__} {sys.version} {msgspec.__version__}".encode())
    for part in _CODE_PARTS:
        for path in sorted((Path(clisup.__file__).parent / part).rglob("*.py")):
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


CODE = _code()
"""Digest of the code, taken when the code is loaded: an upgrade may replace the files under a running daemon."""


class CheckpointRefusedError(Exception):
    """Checkpoint that cannot be used. `expected` marks a checkpoint of other code: nothing is damaged."""

    def __init__(self, why: str, *, expected: bool = False) -> None:
        super().__init__(why)
        self.expected = expected


class Checkpoint(Struct, frozen=True):
    """State of a run. Every event of the lines up to `place` is in the journal; `known` is the last event of stdout.

    `decoder` is `Decoder.state`. `unparsed` is the count of unparsed lines. `reset` tells whether the CLI has reported
    another conversation. At the start of a turn there is no `tracker`, and everything else is empty.
    """

    turn_id: str
    place: SpoolPlace
    known: Position = field(default_factory=Position)
    decoder: Struct | None = None
    tracker: PhaseTracker | None = None
    unparsed: int = 0
    reset: bool = False


class _Origin(Struct, frozen=True, kw_only=True):
    """Code and run that wrote a file."""

    format: int
    code: str
    session: str
    run: int


class _File(_Origin, frozen=True, kw_only=True):
    """Content of a file."""

    turn_id: str
    place: SpoolPlace
    known: Position
    decoder: msgspec.Raw
    tracker: PhaseTracker
    unparsed: Annotated[int, Meta(ge=0)]
    reset: bool


class Checkpoints:
    """Checkpoint file of one run. It is never synced: after a power loss the CLI is gone, too.

    A checkpoint is written over the last one: on ext4 that takes 10 µs, and a rename 150. A kill in the middle of a write
    leaves a damaged checkpoint.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._dir = run_dir
        self.due_at = CHECKPOINT_BYTES
        """Place of stdout from which on another checkpoint is due."""
        self.damage: str | None = None
        """Reason why `load` refused a checkpoint that this code may have written for this turn."""

    def load(self, turn: TurnRecord, decoder: Decoder) -> Checkpoint:
        """Return the checkpoint of the running turn, or that of its start. Give a new decoder the state of the checkpoint.

        A turn that is being ended is decoded whole, because the order may have to be repeated at its first line.
        """
        start = Checkpoint(turn.id, turn.begin)
        if decoder.state is None or turn.ending is not None:
            return start
        try:
            found = unpack(read_file(self._dir.checkpoint, _HEAD + LARGEST), self._dir, type(decoder.state))
            self._check(found, turn)
        except FileNotFoundError:
            return start
        except OSError as error:
            self.damage = f"it cannot be read: {error.strerror}"
            return start
        except CheckpointRefusedError as error:
            self.damage = None if error.expected else str(error)
            return start
        if found.turn_id != turn.id:
            return start
        decoder.restore(found.decoder)
        return found

    def _check(self, found: Checkpoint, turn: TurnRecord) -> None:
        """Compare a checkpoint of this turn with the journal and the spools."""
        if found.turn_id != turn.id:
            return
        place, known = found.place, found.known
        if known.end > place["out"] or not turn.has_journaled("out", known.end, known.k):
            raise CheckpointRefusedError("the journal does not have its events")
        for spool, path in (("out", self._dir.out), ("err", self._dir.err)):
            if place[spool] < turn.begin[spool] or not is_end_of_line(path, place[spool]):  # type: ignore[literal-required]
                raise CheckpointRefusedError(f"its place in std{spool} is no end of a line")

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in place of the last one. Keep the last one if the disk refuses, or the state cannot be stored."""
        data = pack(checkpoint, self._dir)
        self.due_at = checkpoint.place["out"] + max(CHECKPOINT_BYTES, SHARE * len(data or b""))
        if data is not None:
            with suppress(OSError), open(os.open(self._dir.checkpoint, _FLAGS, 0o600), "wb", buffering=0) as file:
                file.write(data)


def pack(checkpoint: Checkpoint, run_dir: RunDir) -> bytes | None:
    """Return a checkpoint as bytes, or None for a state that cannot be stored: too large, or with half a character in it."""
    if checkpoint.decoder is None or checkpoint.tracker is None:
        return None
    try:
        data = msgspec.json.encode(
            _File(
                format=FORMAT, code=CODE, session=run_dir.session, run=run_dir.number, turn_id=checkpoint.turn_id,
                place=checkpoint.place, known=checkpoint.known, decoder=msgspec.Raw(msgspec.json.encode(checkpoint.decoder)),
                tracker=replace(checkpoint.tracker, background=()), unparsed=checkpoint.unparsed, reset=checkpoint.reset,
            )
        )  # fmt: skip
    except (ValueError, TypeError, RecursionError):
        return None
    return _head(data) + data if len(data) <= LARGEST else None


def unpack(data: bytes, run_dir: RunDir, state: type[Struct]) -> Checkpoint:
    """Return the checkpoint of `pack`, with a state of this type. Ignore bytes after it. Raises `CheckpointRefusedError`."""
    try:
        size = int(data[:8], 16)
    except ValueError:
        raise CheckpointRefusedError("it has another format") from None
    body = data[_HEAD : _HEAD + size]
    if size > LARGEST or data[:_HEAD] != _head(body):
        raise CheckpointRefusedError("it is damaged")
    try:
        origin = msgspec.json.decode(body, type=_Origin)
        if (origin.format, origin.code) != (FORMAT, CODE):
            raise CheckpointRefusedError("other code wrote it", expected=True)
        if (origin.session, origin.run) != (run_dir.session, run_dir.number):
            raise CheckpointRefusedError("another run wrote it")
        file = msgspec.json.decode(body, type=_File)
        decoder = msgspec.json.decode(file.decoder, type=state)
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise CheckpointRefusedError("a value has a wrong type") from error
    if is_deeper(value, body, MAX_DEPTH) or has_larger_number(value, LARGEST_COUNT):
        raise CheckpointRefusedError("a value is nested too deep, or too large")
    tracker = file.tracker
    if tracker.approvals or not tracker.started or tracker.finished or tracker.resting or tracker.blocked:
        raise CheckpointRefusedError("its turn was not at work")
    return Checkpoint(file.turn_id, file.place, file.known, decoder, tracker, file.unparsed, file.reset)


def _head(body: bytes) -> bytes:
    """Return what stands before the rest of a file."""
    return b"%08x %08x\n" % (len(body), zlib.crc32(body))

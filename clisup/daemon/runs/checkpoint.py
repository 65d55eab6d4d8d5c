"""Checkpoint of a run in the middle of a turn: the state of its decoder at a place of the spools.

The next daemon decodes the output after this place. Without a checkpoint it decodes the whole turn again. Only the same
code reads a checkpoint: other code may decode in another way.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

import clisup
from clisup.model.sessions.ledger import Position, TurnRecord
from clisup.model.sessions.turn_state import SpoolPlace
from clisup.policy.watchdog import PhaseTracker
from clisup.store.session_dir import RunDir

__all__ = ["CHECKPOINT_BYTES", "LARGEST", "Checkpoint", "Checkpoints", "pack", "unpack"]

CHECKPOINT_BYTES = 256 * 1024
"""Bytes of stdout between two checkpoints. To decode them again takes about 5 ms."""
LARGEST = 1024 * 1024
"""Largest checkpoint in bytes. A decoder with a larger state keeps its last checkpoint."""
SHARE = 16
"""Bytes of stdout for each byte of a checkpoint, so that a large state is written less often."""
_SIZE = 4  # bytes of the state's size in the head
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_CLASSES = ("clisup.backends.", "clisup.model.", "clisup.policy.watchdog", __name__)


class Checkpoint(Struct, frozen=True):
    """State of a run. Every event of the lines up to `place` is in the journal; `known` is the last event of stdout.

    `decoder` is `Decoder.state`. `unparsed` is the count of unparsed lines. `reset` tells whether the CLI has reported
    another conversation. At the start of a turn there is no `tracker`, and everything else is empty.
    """

    turn_id: str
    place: SpoolPlace
    known: Position = field(default_factory=Position)
    decoder: dict[str, Any] = field(default_factory=dict)
    tracker: PhaseTracker | None = None
    unparsed: int = 0
    reset: bool = False


class Checkpoints:
    """Checkpoint file of one run. It is never synced: after a power loss the CLI is gone, too.

    A checkpoint is written over the last one: on ext4 that takes 10 µs, and a rename 150. A kill in the middle of a write
    leaves a damaged checkpoint.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._path = run_dir.checkpoint
        self.due_at = CHECKPOINT_BYTES
        """Place of stdout from which on another checkpoint is due."""

    def load(self, turn: TurnRecord) -> Checkpoint:
        """Return the checkpoint of the running turn, or that of its start.

        A turn that is being ended is decoded whole, because the order may have to be repeated at its first line.
        """
        start, found = Checkpoint(turn.id, turn.begin), None
        with suppress(OSError), open(self._path, "rb") as file:
            size = min(os.fstat(file.fileno()).st_size, 2 * LARGEST)  # `read` allocates the size it is asked for
            found = unpack(file.read(size))
        if found is None or found.turn_id != turn.id or turn.ending is not None:
            return start
        return found if turn.has_journaled("out", found.known.end, found.known.k) else start

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in place of the last one. Keep the last one if the disk refuses, or the state cannot be stored."""
        data = pack(checkpoint)
        self.due_at = checkpoint.place["out"] + max(CHECKPOINT_BYTES, SHARE * len(data or b""))
        if data is not None:
            with suppress(OSError), open(os.open(self._path, _FLAGS, 0o600), "wb", buffering=0) as file:
                file.write(data)


def pack(checkpoint: Checkpoint) -> bytes | None:
    """Return a checkpoint as bytes, or None for a state that cannot be stored: too large, or with a function in it."""
    try:
        data = pickle.dumps(checkpoint, protocol=5)
    except (AttributeError, TypeError, pickle.PicklingError):
        return None
    return _head(data) + data if len(data) <= LARGEST else None


def unpack(data: bytes) -> Checkpoint | None:
    """Return the checkpoint of `pack`, or None for damaged bytes and for those of other code. Ignore bytes after it."""
    size = int.from_bytes(data[:_SIZE], "big")
    head, state = data[: _SIZE + 32], data[_SIZE + 32 :][:size]
    if head != _head(state):
        return None
    try:
        found = _Reader(io.BytesIO(state)).load()
    except Exception:  # somebody else's bytes may raise anything
        return None
    return found if isinstance(found, Checkpoint) else None


class _Reader(pickle.Unpickler):
    """Reader of our own classes alone: a CLI can write to our files, and a pickle can name any function."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith(_CLASSES) else None
        if not str(getattr(found, "__module__", "")).startswith(_CLASSES):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a checkpoint")
        return found


def _head(state: bytes) -> bytes:
    """Return what stands before a state: its size, and a digest of the code and of the state."""
    return len(state).to_bytes(_SIZE, "big") + hashlib.sha256(_code() + state).digest()


@cache
def _code() -> bytes:
    """Return a digest of the code that a checkpoint depends on."""
    digest = hashlib.sha256(f"{sys.version} {msgspec.__version__}".encode())
    root = Path(clisup.__file__).parent
    for path in sorted(
        path for part in ("backends", "daemon/runs", "model", "policy") for path in (root / part).rglob("*.py")
    ):
        digest.update(path.read_bytes())
    return digest.digest()

"""Seam between the fleet and the engine that it stands on: streams with conditional appends, buckets, and calls.

The streams and buckets have fixed names. A subject names its stream. `nats_engine.py` has the implementation.

An append or a swap ends in one of three ways. It is stored; another one was stored before it; or it is in doubt. In
doubt the method raises `WorldError(fleet_away)`, and the caller looks what is stored before it tries again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, Protocol

from clisup.errors import UsageError

__all__ = ["STREAMS", "Bucket", "BucketEntry", "Engine", "Handler", "StoredMessage", "Stream", "stream_of"]

DAY_S = 86_400.0
_BUCKET = "$KV."
_KEY = re.compile(r"[A-Za-z0-9_=/-]{1,200}(\.[A-Za-z0-9_=/-]{1,200})?")

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Answer to a call: from the subject and the request to the response. A handler that raises gives no response."""


class Stream(NamedTuple):
    """Stream of the fleet: its name, the prefix of its subjects, how long it keeps a message, and whether only one a subject.

    A bucket is a stream that keeps the last message of a subject. `once`: a second message is refused.
    """

    name: str
    prefix: str
    keep_s: float
    single: bool = True
    once: bool = False


def _bucket(name: str, keep_s: float) -> Stream:
    return Stream(f"KV_{name}", f"{_BUCKET}{name}.", keep_s)


STREAMS = (
    Stream("CLISUP_EV", "clisup.ev.", 30 * DAY_S, single=False),
    Stream("CLISUP_JOB", "clisup.job.", 7 * DAY_S, once=True),
    _bucket("JOBS", 7 * DAY_S),
    _bucket("BOXES", 60.0),
    _bucket("SESSIONS", 30 * DAY_S),
    _bucket("HOLDS", 7 * DAY_S),
)
"""Streams of the fleet. The names of the buckets are those that the engine's own tools know."""


def stream_of(subject: str) -> Stream:
    """Return the stream of a subject. Raises `UsageError` for a subject outside the fleet's streams."""
    for stream in STREAMS:
        if subject.startswith(stream.prefix):
            return stream
    raise UsageError(f"no stream of the fleet holds the subject {subject!r}")


class StoredMessage(NamedTuple):
    """Message of a stream. `at` is the engine's time of day in seconds since the epoch."""

    subject: str
    position: int
    data: bytes
    headers: Mapping[str, str]
    at: float


class Engine(Protocol):
    """Connection to the engine. Every method may raise `WorldError`: `fleet_away`, or `permission_denied` for this key."""

    @property
    def connected(self) -> bool:
        """Tell whether there is a connection now."""

    @property
    def max_payload(self) -> int:
        """Return the largest size of a message, headers included."""

    async def append(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, expected: int | None = None
    ) -> int | None:
        """Store a message and return its position.

        With `expected` the message is stored only if the last message of the subject has this position; 0 is an empty
        subject. Return None if another message is the last one.
        """

    async def last(self, subject: str) -> StoredMessage | None:
        """Return the last message of a subject from the stream's leader. The subject may have wildcards."""

    def read(self, subject: str, after: int = 0) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages behind the position `after`, then new ones, in order. The subject may have wildcards.

        Interruptions are repaired. The iterator ends only if the stream lost messages that it had: its end is before
        `after`. Then the caller drops what it read, and reads again from 0.
        """

    async def call(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        """Return the response of the process that answers to a subject, or None at once if there is none.

        A call is not stored. Raises `WorldError(fleet_away)` without a response in time: the call may have arrived.
        """

    def answer(self, subject: str, handler: Handler) -> AbstractAsyncContextManager[None]:
        """Answer the calls to a subject while the context is open. The subject may have wildcards."""


class BucketEntry(NamedTuple):
    """Value of a key, with the revision against which the next swap is made. `at` is the engine's time of the swap."""

    key: str
    value: bytes
    revision: int
    at: float


class Bucket:
    """Keys with values that are swapped by revision."""

    __slots__ = ("_engine", "_prefix")

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._prefix = engine, stream_of(f"{_BUCKET}{name}.").prefix

    async def get(self, key: str) -> BucketEntry | None:
        """Return the value of a key, from the leader."""
        found = await self._engine.last(self._subject(key))
        return found and self._entry(found)

    async def create(self, key: str, value: bytes) -> int | None:
        """Store the first value of a key and return its revision, or None if the key has a value."""
        return await self.swap(key, 0, value)

    async def swap(self, key: str, revision: int, value: bytes) -> int | None:
        """Replace the value of this revision and return the new revision, or None if the key has another revision."""
        return await self._engine.append(self._subject(key), value, expected=revision)

    async def put(self, key: str, value: bytes) -> None:
        """Store a value, whatever the key has. For keys that only one box writes."""
        await self._engine.append(self._subject(key), value)

    async def entries(self) -> list[BucketEntry]:
        """Return the present value of each key."""
        last = await self._engine.last(f"{self._prefix}>")
        found = dict[str, BucketEntry]()
        if last is not None:
            async with aclosing(self.watch()) as entries:
                async for entry in entries:
                    found[entry.key] = entry
                    if entry.revision >= last.position:
                        break
        return list(found.values())

    async def watch(self, after: int = 0) -> AsyncGenerator[BucketEntry, None]:
        """Yield the present value of each key behind the revision `after`, then each new value.

        A key that expires is not reported. The iterator ends as `Engine.read` does.
        """
        async with aclosing(self._engine.read(f"{self._prefix}>", after)) as messages:
            async for message in messages:
                yield self._entry(message)

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise UsageError(f"cannot use the key {key[:80]!r} in the fleet: use letters, digits, one dot and -_=/")
        return self._prefix + key

    def _entry(self, message: StoredMessage) -> BucketEntry:
        key = message.subject.removeprefix(self._prefix)
        return BucketEntry(key, message.data, message.position, message.at)

"""Seam between the fleet and the engine that it stands on: streams with conditional appends, buckets, and calls.

The streams and buckets have fixed names. A subject names its stream. `nats_engine.py` has the implementation.

An append or a swap ends in one of three ways. It is stored; another one was stored before it; or it is in doubt. In
doubt the method raises `WorldError(fleet_away)`, and the caller looks what is stored before it tries again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import NamedTuple, Protocol

from clisup.errors import UsageError

__all__ = [
    "DAY_S",
    "JOB_KEEP_S",
    "STEPS_MOST",
    "STREAMS",
    "Bucket",
    "BucketEntry",
    "Engine",
    "Handler",
    "StoredMessage",
    "Stream",
    "stream_of",
]

DAY_S = 86_400.0
JOB_KEEP_S = 14 * DAY_S
"""Seconds for which the engine knows a job."""
STEPS_MOST = 1000
"""Steps of one job that one member may write."""
_MIB = 1024 * 1024
_BUCKET = "$KV."
_KEY = re.compile(r"[A-Za-z0-9_=/-]{1,200}(\.[A-Za-z0-9_=/-]{1,200})?")

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Answer to a call: from the subject and the request to the response. A handler that raises gives no response."""


class Stream(NamedTuple):
    """Stream of the fleet: its name, the prefix of its subjects, and how long it keeps a message.

    `most` is the number of messages that a subject keeps; -1 is no limit. `once`: a message beyond it is refused, and
    otherwise the oldest one goes. `max_bytes` bounds the stream and `max_message` a message; -1 is no limit. A subject
    of a `shared` stream ends in the role and the name of the member that may write it. `private`: a worker reads its own
    subjects only.
    """

    name: str
    prefix: str
    keep_s: float
    most: int = 1
    once: bool = False
    shared: bool = False
    private: bool = False
    max_bytes: int = -1
    max_message: int = -1

    @property
    def single(self) -> bool:
        """Tell whether a subject keeps its last message only."""
        return self.most == 1


def _bucket(name: str, keep_s: float, *, mib: int, kib: int, **more: bool) -> Stream:
    return Stream(f"KV_{name}", f"{_BUCKET}{name}.", keep_s, max_bytes=mib * _MIB, max_message=kib * 1024, **more)


STREAMS = (
    Stream("CLISUP_EV", "clisup.ev.", 30 * DAY_S, most=-1, private=True),
    Stream("CLISUP_JOB", "clisup.job.", JOB_KEEP_S, once=True),
    Stream("CLISUP_STATE", "clisup.state.", JOB_KEEP_S, most=STEPS_MOST, once=True, shared=True, max_bytes=256 * _MIB,
           max_message=16 * 1024),
    _bucket("BOXES", 60.0, mib=64, kib=64),
    _bucket("SESSIONS", 30 * DAY_S, mib=512, kib=256, private=True),
    _bucket("HOLDS", 7 * DAY_S, mib=16, kib=16, shared=True),
)  # fmt: skip
"""Streams of the fleet. The names of the buckets are those that the engine's own tools know."""
_NAMED = {"JOBS": "clisup.state."} | {name: f"{_BUCKET}{name}." for name in ("BOXES", "SESSIONS", "HOLDS")}


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
    def member(self) -> str:
        """Return the name of the member that is connected."""

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
    """Value of a key, with the revision against which the next swap is made. `at` is the engine's time of the swap.

    In a shared bucket, `role` and `writer` are those of the member that wrote the value: the engine proves them.
    """

    key: str
    value: bytes
    revision: int
    at: float
    role: str = ""
    writer: str = ""


class Bucket:
    """Keys with values. In a shared bucket each member writes a value of its own for a key, in its `role`.

    JOBS keeps all values of a key, in one order, and the other buckets the last one of each writer.
    """

    __slots__ = ("_engine", "_mine", "_prefix", "_shared", "_single")

    def __init__(self, engine: Engine, name: str, role: str = "work") -> None:
        self._engine, self._prefix = engine, _NAMED[name]
        stream = stream_of(self._prefix)
        self._shared, self._single = stream.shared, stream.single
        self._mine = f".{role}.{engine.member}" if self._shared else ""

    async def get(self, key: str) -> BucketEntry | None:
        """Return the last value of a key, whoever wrote it."""
        found = await self._engine.last(self._of(key, ".*.*" if self._shared else ""))
        return found and self._entry(found)

    async def create(self, key: str, value: bytes) -> int | None:
        """Store this member's first value of a key and return its revision, or None if there is one."""
        return await self.swap(key, 0, value)

    async def swap(self, key: str, revision: int, value: bytes) -> int | None:
        """Replace this member's value of this revision and return the new revision, or None if it has another one."""
        return await self._engine.append(self._of(key, self._mine), value, expected=revision)

    async def put(self, key: str, value: bytes) -> int | None:
        """Store this member's value of a key, whatever the key has, and return its revision."""
        return await self._engine.append(self._of(key, self._mine), value)

    async def entries(self, key: str = "", member: str = "") -> list[BucketEntry]:
        """Return the present values in their order: all of them, those of one key, or those of one member's keys."""
        last, found = await self._engine.last(self._filter(key, member)), dict[Hashable, BucketEntry]()
        if last is not None:
            async with aclosing(self.watch(key=key, member=member)) as entries:
                async for entry in entries:
                    found[(entry.key, entry.role, entry.writer) if self._single else entry.revision] = entry
                    if entry.revision >= last.position:
                        break
        return list(found.values())

    async def watch(self, after: int = 0, *, key: str = "", member: str = "") -> AsyncGenerator[BucketEntry, None]:
        """Yield the present values behind the revision `after`, then each new value. `key` and `member` narrow them.

        A key that expires is not reported. The iterator ends as `Engine.read` does.
        """
        async with aclosing(self._engine.read(self._filter(key, member), after)) as messages:
            async for message in messages:
                yield self._entry(message)

    def _filter(self, key: str, member: str) -> str:
        narrow = key or member
        return self._of(narrow, ".>") if narrow else f"{self._prefix}>"

    def _of(self, key: str, tail: str) -> str:
        if not _KEY.fullmatch(key) or (self._shared and "." in key):
            raise UsageError(f"cannot use the key {key[:80]!r} in the fleet: use letters, digits, one dot and -_=/")
        return self._prefix + key + tail

    def _entry(self, message: StoredMessage) -> BucketEntry:
        key, role, writer = message.subject.removeprefix(self._prefix), "", ""
        if self._shared:  # a key of an earlier clisup has no writer
            key, _, mine = key.partition(".")
            role, _, writer = mine.partition(".")
        return BucketEntry(key, message.data, message.position, message.at, role, writer)

"""Engine in memory, for tests: the contract of `clisup.fleet.engine.Engine` without a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from clisup.errors import WorldError
from clisup.fleet.engine import Handler, StoredMessage, stream_of
from clisup.fleet.member import Role
from clisup.fleet.setup.permissions import permissions_of


class MemoryEngine:
    """Streams as lists. `away` makes every method raise; `lose` drops the end of a stream."""

    max_payload = 1024 * 1024
    member = "box"

    def __init__(self) -> None:
        self.away = False
        self.clock: Callable[[], float] = time.time
        self._streams: dict[str, list[StoredMessage]] = {}
        self._ends: dict[str, int] = {}
        self._handlers: dict[str, Handler] = {}
        self._change = asyncio.Condition()

    @property
    def connected(self) -> bool:
        return not self.away

    async def append(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, expected: int | None = None
    ) -> int | None:
        stream = stream_of(subject)
        if len(data) > self.max_payload:
            raise WorldError("the message is too large", kind="fleet_away")
        last = await self.last(subject)
        if expected is not None and expected != (last.position if last else 0):
            return None
        kept = self._streams.setdefault(stream.name, [])
        there = [message for message in kept if message.subject == subject]
        if stream.once and len(there) >= stream.most:
            raise WorldError("the subject has its messages", kind="fleet_away")
        if stream.single and there:
            kept.remove(there[0])
        position = self._ends[stream.name] = self._ends.get(stream.name, 0) + 1
        kept.append(StoredMessage(subject, position, data, dict(headers or {}), self.clock()))
        async with self._change:
            self._change.notify_all()
        return position

    async def last(self, subject: str) -> StoredMessage | None:
        self._check()
        found = self._streams.get(stream_of(subject).name, [])
        return next((message for message in reversed(found) if matches(subject, message.subject)), None)

    async def read(self, subject: str, after: int = 0) -> AsyncGenerator[StoredMessage, None]:
        name = stream_of(subject).name
        while True:
            if self._ends.get(name, 0) < after:
                return
            for message in list(self._streams.get(name, [])):
                if message.position > after and matches(subject, message.subject):
                    after = message.position
                    yield message
            async with self._change:
                if self._ends.get(name, 0) >= after and not self._behind(name, subject, after):
                    await self._change.wait()

    def _behind(self, name: str, subject: str, after: int) -> bool:
        kept = self._streams.get(name, [])
        return any(message.position > after and matches(subject, message.subject) for message in kept)

    async def call(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        self._check()
        handler = next((found for own, found in self._handlers.items() if matches(own, subject)), None)
        if handler is None:
            return None
        try:
            return await asyncio.wait_for(handler(subject, data), timeout_s)
        except Exception:
            raise WorldError("there is no answer", kind="fleet_away") from None

    @asynccontextmanager
    async def answer(self, subject: str, handler: Handler) -> AsyncIterator[None]:
        self._handlers[subject] = handler
        try:
            yield
        finally:
            self._handlers.pop(subject, None)

    async def lose(self, subject: str, count: int) -> None:
        """Lose the last messages that a stream acknowledged."""
        name = stream_of(subject).name
        del self._streams[name][-count:]
        self._ends[name] -= count
        async with self._change:
            self._change.notify_all()

    def subjects(self) -> set[str]:
        """Return the subjects with a message."""
        return {message.subject for kept in self._streams.values() for message in kept}

    def _check(self) -> None:
        if self.away:
            raise WorldError("the engine of the fleet is away", kind="fleet_away")


class MemberEngine:
    """Engine in memory as one member sees it. With roles, it refuses what the member's key may not publish."""

    def __init__(self, engine: MemoryEngine, member: str, roles: Iterable[Role] = ()) -> None:
        self._engine, self.member = engine, member
        self._allowed = permissions_of(member, roles).publish if roles else (">",)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def append(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, expected: int | None = None
    ) -> int | None:
        if not any(matches(pattern, subject) for pattern in self._allowed):
            raise WorldError(f"{self.member} may not write {subject}", kind="permission_denied")
        return await self._engine.append(subject, data, headers, expected=expected)


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject matches a pattern: `*` is one token, `>` the rest."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        found = found[: len(wanted)] if len(found) > len(wanted) else []
    return len(wanted) == len(found) and all(w in ("*", f) for w, f in zip(wanted, found, strict=True))

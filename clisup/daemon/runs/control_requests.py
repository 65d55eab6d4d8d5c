"""Control requests to a live CLI, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio

from clisup.backends.base import ControlAnswer

__all__ = ["ControlRequests"]


class _OpenRequest:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: ControlAnswer | None = None


class ControlRequests:
    """Open control requests of one run, by their ids."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenRequest] = {}

    async def request(self, request_id: str, send: Callable[[], Awaitable[bool]]) -> ControlAnswer | None:
        """Send a request and wait for its answer. Return None if it was not sent, or the run ended without an answer."""
        request = self._open[request_id] = _OpenRequest()
        try:
            if not await send():
                return None
            await request.done.wait()
            return request.answer
        finally:
            del self._open[request_id]

    def answered(self, answers: Iterable[ControlAnswer]) -> None:
        """Deliver answers to their waiters. Ignore answers to requests of an earlier daemon."""
        for answer in answers:
            if (request := self._open.get(answer.request_id)) is not None:
                request.answer = answer
                request.done.set()

    def close(self) -> None:
        """End all waits: no answer comes any more."""
        for request in self._open.values():
            request.done.set()

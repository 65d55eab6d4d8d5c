"""Who waits for a live CLI's answer to a request of ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio

from clisup.backends.base import ControlAnswer

__all__ = ["Answers"]


class Answers:
    """The open requests of one run, by their ids."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    async def ask(self, request_id: str, say: Callable[[], Awaitable[bool]]) -> ControlAnswer | None:
        """Say it, and wait for the answer; None where it could not be said, or the run ended without one."""
        waiting = self._waiting[request_id] = _Waiting()
        try:
            if not await say():
                return None
            await waiting.came.wait()
            return waiting.answer
        finally:
            del self._waiting[request_id]

    def take(self, answers: Iterable[ControlAnswer]) -> None:
        """These came. One that nobody waits for was asked for by a daemon before this one."""
        for answer in answers:
            if (waiting := self._waiting.get(answer.request_id)) is not None:
                waiting.answer = answer
                waiting.came.set()

    def close(self) -> None:
        """No more will come."""
        for waiting in self._waiting.values():
            waiting.came.set()


class _Waiting:
    def __init__(self) -> None:
        self.came = trio.Event()
        self.answer: ControlAnswer | None = None

"""Sessions that stream all the time, on every box. Each prompt has a key, so it is repeated until it has an end."""

from __future__ import annotations

import asyncio
import uuid

from tests.fleet_chaos.rpc import Line, persistent_call

__all__ = ["Load"]


class Load:
    """Load of one daemon: `sessions` streams of `rate` events a second each, in turns of `turn_s` seconds."""

    def __init__(self, socket: str, cwd: str, *, sessions: int, rate: float, turn_s: float = 8.0) -> None:
        self._socket, self._cwd = socket, cwd
        self._sessions, self._rate, self._turn_s = sessions, rate, turn_s
        self._stop = asyncio.Event()
        self.turns = 0

    async def run(self) -> None:
        """Play turns until `stop`. Every turn that began has its end then."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._sessions):
                tasks.create_task(self._session(number))

    def stop(self) -> None:
        """End the sessions after their present turns."""
        self._stop.set()

    async def _session(self, number: int) -> None:
        line, session_id = Line(self._socket), str(uuid.uuid4())
        prompt = f"@stream {int(self._rate * self._turn_s)} 120 {1 / self._rate:.4f}"
        await asyncio.sleep(number / self._sessions)  # not all turns begin at once
        try:
            await persistent_call(line, "session/new", session_id=session_id, backend="demo", cwd=self._cwd)
            while not self._stop.is_set():
                key = f"turn-{uuid.uuid4()}"
                await persistent_call(line, "session/prompt", session_id=session_id, prompt=prompt, key=key, wait=True)
                self.turns += 1
        finally:
            line.close()

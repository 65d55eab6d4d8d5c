"""Work of a batch: some prompts at once, taken up where an earlier start of the command left them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from clisup.cli.batch.lines import BatchLine
from clisup.cli.turn import exit_code_of_turn
from clisup.client.aio import AsyncClient
from clisup.client.aio_requests import call_surely
from clisup.client.nurseries import open_plain_nursery
from clisup.client.raw import JsonObject
from clisup.client.reconnect import may_come_back
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["MAX_ATTEMPTS", "WATCH_S", "BatchWork", "LineResult"]

MAX_ATTEMPTS = 1000
"""Attempts at one line at most, with --retry-failed."""

WATCH_S = 2.0
"""Seconds between two looks for approvals that wait."""

_PAGE = 1000
_MODES = {1: "graceful", 2: "kill"}


@dataclass(frozen=True, slots=True)
class LineResult:
    """End of one line. `before` is set if the turn had ended before this start of the command. `error`: no turn ran."""

    item: BatchLine
    session_id: str
    end: JsonObject
    before: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code that `clisup run` has for such a turn."""
        code: int | None = self.end.get("exit_code")
        return exit_code_of_turn(self.end) if code is None else code

    @property
    def ok(self) -> bool:
        """Tell whether the turn completed, and no tool was denied."""
        return self.exit_code == EXIT_OK

    def to_json(self) -> JsonObject:
        """Return the object that `--json` prints."""
        end = self.end
        return {
            "line": self.item.number,
            "key": self.item.key,
            "session_id": self.session_id,
            "turn_id": end.get("turn_id"),
            "outcome": end["outcome"],
            "exit_code": self.exit_code,
            "ended_before": self.before,
            "duration_s": end.get("duration_s"),
            "cost_usd": end.get("cost_usd"),
            "cost_source": end.get("cost_source"),
            "usage": end.get("usage"),
            "denied": end.get("denied") or [],
            "error": end.get("error"),
            "structured": end.get("structured"),
            "text": end.get("text") or "",
        }


@dataclass(kw_only=True)
class BatchWork:
    """Run of the command over its lines. `tell` gets each result, `note` a line for people, `watch` the open approvals."""

    client: AsyncClient
    name: str
    tell: Callable[[LineResult], None]
    note: Callable[[str], None]
    watch: Callable[[int], None]
    keep: bool = False
    retry_failed: bool = False
    stop_on_failure: bool = False

    def __post_init__(self) -> None:
        self.interrupts = 0
        """Number of times that Ctrl-C was pressed."""
        self._stopped = False
        self._failure: ClisupError | None = None
        self._running: dict[str, str] = {}

    async def run(self, items: Iterable[BatchLine], at_once: int) -> None:
        """Carry out the lines. Raises the error of a daemon that stays away; the turns go on without this command."""
        shared = iter(items)
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with open_plain_nursery() as around:  # its end cancels the two tasks beside the workers
                around.start_soon(self._heed, signals, around.cancel_scope)
                around.start_soon(self._look_at_approvals)
                async with open_plain_nursery(cancel=False) as workers:
                    for _ in range(at_once):
                        workers.start_soon(self._work, shared, workers.cancel_scope)
        if self._failure is not None:
            raise self._failure

    async def remove(self, items: Iterable[BatchLine]) -> None:
        """Delete the sessions of all lines."""
        for item in items:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    await self._close(item.session_id(attempt))
                    await self._ask("session/delete", session_id=item.session_id(attempt))
                except ClisupError as error:
                    if error.kind != "session_not_found":
                        raise
                    break

    # -- tasks

    async def _work(self, items: Iterable[BatchLine], scope: trio.CancelScope) -> None:
        for item in items:
            if self._stopped:
                return
            try:
                result = await self._carry_out(item)
            except ClisupError as error:
                self._failure = self._failure or error
                scope.cancel()
                return
            if result is None:
                return
            self.tell(result)
            if self.stop_on_failure and not result.ok:
                self._stopped = True

    async def _heed(self, signals: Any, scope: trio.CancelScope) -> None:
        """Interrupt the turns at the first Ctrl-C, kill them at the second, leave at the third."""
        async with open_plain_nursery() as nursery:
            async for _ in signals:
                self.interrupts += 1
                self._stopped = True
                if self.interrupts not in _MODES:
                    scope.cancel()
                    return
                self.note(_SIGNAL_NOTES[self.interrupts])
                for session_id in tuple(self._running):
                    nursery.start_soon(self._interrupt, session_id)

    async def _interrupt(self, session_id: str) -> None:
        turn_id = self._running.get(session_id)
        params = {"session_id": session_id, "turn_id": turn_id, "mode": _MODES[self.interrupts]}
        with suppress(ClisupError):  # the turn has ended meanwhile, or the daemon is away: its result says so
            await self._ask("session/interrupt", **params)

    async def _look_at_approvals(self) -> None:
        """Tell how many approvals wait. A subscription would tell at once, but it counts as somebody who answers."""
        while True:
            await trio.sleep(WATCH_S)
            with suppress(ClisupError):
                rows = (await self.client.call("session/list", labels={"batch": self.name}, limit=_PAGE))["sessions"]
                self.watch(sum(row["approvals"] for row in rows))

    # -- one line

    async def _carry_out(self, item: BatchLine) -> LineResult | None:
        """Run a line to its end. Return None if Ctrl-C came first. A refusal of the daemon is the line's result."""
        session_id = item.session_id(1)
        try:
            session_id, end = await self._find(item)
            before = end is not None
            if end is None:
                end = await self._turn(item, session_id)
            if end is None:
                return None
            if end.get("blob"):
                end = end | {"text": (await self.client.blob(session_id, end["blob"])).decode("utf-8", "replace")}
            if not self.keep:
                await self._close(session_id)
        except ClisupError as error:
            if may_come_back(error):
                raise
            refusal = {"kind": error.kind, "message": error.message, "hint": error.hint}
            return LineResult(item, session_id, {"outcome": "refused", "exit_code": error.exit_code, "error": refusal})
        return LineResult(item, session_id, end, before)

    async def _find(self, item: BatchLine) -> tuple[str, JsonObject | None]:
        """Return the session of the line's last attempt, and the end of its turn if it has ended.

        The id of the next attempt is returned if the last one failed and failed lines are to be tried again, or if its
        session was closed before it had a prompt.
        """
        attempt, found = 0, None
        while attempt < MAX_ATTEMPTS and (detail := await self._get(item.session_id(attempt + 1))) is not None:
            attempt, found = attempt + 1, detail
        session_id = item.session_id(max(attempt, 1))
        if found is None:
            return session_id, None
        prompted, end = await self._end(session_id)
        again = end is not None and self.retry_failed and exit_code_of_turn(end) != EXIT_OK
        if again or (found["state"] == "closed" and not prompted):
            return item.session_id(attempt + 1), None
        return session_id, end

    async def _turn(self, item: BatchLine, session_id: str) -> JsonObject | None:
        """Open the session if it is new, send the prompt once, and wait for the end of its turn."""
        if self.interrupts:
            return None
        try:
            await self._ask("session/new", session_id=session_id, **item.session)
        except ClisupError as error:
            if error.kind != "session_exists":  # opened by an earlier start, with other labels or limits
                raise
        prompt = {"session_id": session_id, "key": session_id, **item.prompt}
        try:
            turn_id = (await self._ask("session/prompt", **prompt))["turn_id"]
        except ClisupError as error:
            if not may_come_back(error) and not (await self._end(session_id))[0]:
                await self._discard(session_id)
            raise
        self._running[session_id] = turn_id
        try:
            if self.interrupts:  # between the two requests
                await self._interrupt(session_id)
            await self._ask("session/prompt", **prompt, wait=True)
        except ClisupError as error:
            if error.kind != "session_closed":
                raise
        finally:
            del self._running[session_id]
        _, end = await self._end(session_id)
        return end or {"outcome": "failed", "error": {"kind": "session_not_found", "message": "its events are gone"}}

    async def _end(self, session_id: str) -> tuple[bool, JsonObject | None]:
        """Tell whether the session has the line's prompt, and return the end of its turn if it has ended."""
        after, turn_id = 0, None
        types = ["prompt_accepted", "turn_completed"]
        while True:
            page = await self._ask("session/events", session_id=session_id, after_seq=after, limit=_PAGE, types=types)
            for event in page["events"]:
                if event["type"] == "prompt_accepted" and event.get("key") == session_id:
                    turn_id = event["turn_id"]
                elif event["type"] == "turn_completed" and event["turn_id"] == turn_id is not None:
                    return True, event
            if page["eof"] or page["next_seq"] - 1 <= after:
                return turn_id is not None, None
            after = page["next_seq"] - 1

    async def _get(self, session_id: str) -> JsonObject | None:
        try:
            detail: JsonObject = await self._ask("session/get", session_id=session_id)
        except ClisupError as error:
            if error.kind != "session_not_found":
                raise
            return None
        return detail

    async def _close(self, session_id: str) -> None:
        await self._ask("session/close", session_id=session_id)

    async def _discard(self, session_id: str) -> None:
        """Remove a session that never had a prompt."""
        with suppress(ClisupError):
            await self._close(session_id)
            await self._ask("session/delete", session_id=session_id)

    async def _ask(self, method: str, /, **params: Any) -> Any:
        """Send a request, and send it again after a restart of the daemon. All requests here may be sent twice."""
        return await call_surely(self.client.call, lambda: self.client.server, method, params)


_SIGNAL_NOTES = {
    1: "interrupting the turns; Ctrl-C again kills them",
    2: "killing the turns; Ctrl-C again leaves without waiting",
}

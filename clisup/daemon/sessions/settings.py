"""Settings of a session (model, permission mode), and requests to its live process."""

from __future__ import annotations

import uuid
from typing import Literal

import trio

from clisup.backends.base import Control, ControlAnswer
from clisup.daemon.journal.recorder import Item
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.live import LivePool, LiveRun
from clisup.daemon.sessions.prompts import PromptQueue
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.log import event_logger
from clisup.model.events import Actor, Notice
from clisup.wire.params import CompactParams, PromptParams
from clisup.wire.results import ContextUsageResult, PromptResult, SetResult

__all__ = ["Settings"]

ANSWER_S = 30.0
"""Time for the CLI to answer a request. claude 2.1.329 counts its context in about a second."""
MAX_OPEN = 8
"""Most changes of a session that may wait for the CLI's answer."""
_log = event_logger()


class _Change:
    """Outcome of a change, for the requesting client."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._outcome: SetResult | ClisupError | None = None

    def finish(self, outcome: SetResult | ClisupError) -> None:
        self._outcome = outcome
        self._done.set()

    async def result(self) -> SetResult:
        await self._done.wait()
        assert self._outcome is not None, "the change is finished"
        if isinstance(self._outcome, ClisupError):
            raise self._outcome
        return self._outcome


class Settings:
    """Settings of a session, and requests to the live process."""

    __slots__ = ("_context", "_open", "_pool", "_prompts")

    def __init__(self, context: SessionContext, pool: LivePool, prompts: PromptQueue) -> None:
        self._context = context
        self._pool = pool
        self._prompts = prompts
        self._open = 0  # changes without an answer of the CLI yet

    @property
    def _live(self) -> LiveRun | None:
        return self._pool.get(self._context.id)

    async def set(self, name: Literal["model", "permission_mode"], value: str) -> SetResult:
        """Change a setting of the live process, and of every later process.

        A change continues until the CLI answers, even without its client. The daemon journals the result.
        Raises `UsageError`: session_closed, unsupported, invalid_params (the CLI refuses it); `WorldError`.
        """
        self._context.check_open()
        self._check(name, value)
        if self._open >= MAX_OPEN:
            raise _overloaded(name, f"it has not answered {MAX_OPEN} requests before this one")
        change = _Change()
        self._context.nursery.start_soon(self._apply, change, name, value)
        with trio.move_on_after(ANSWER_S):
            return await change.result()
        raise _late(name)

    async def _apply(self, change: _Change, name: Literal["model", "permission_mode"], value: str) -> None:
        self._open += 1
        try:
            change.finish(await self._set(name, value))
        except ClisupError as error:
            change.finish(error)
        except Exception:  # a fault of this request must not end the daemon
            _log.exception("request failed inside the daemon", method=f"session/set_{name}")
            change.finish(
                ClisupError(f"the {name} was not set: internal error of the daemon", hint="see the daemon's log")
            )
        finally:
            self._open -= 1

    async def _set(self, name: Literal["model", "permission_mode"], value: str) -> SetResult:
        context, live = self._context, self._live
        answer = await self._ask(name, value)
        if answer is not None and answer.error is not None:
            raise UsageError(
                f"the CLI refused the {name} for session {context.id}: {context.redact(answer.error)}",
                kind="invalid_params",
                hint="see backend/list, or clisup backends --json, for what the backend takes",
                param=name,
            )
        notice = Notice(code=f"{name}_set", message=f"the {name} is now {value}", data={"value": value})
        context.recorder.record([Item(notice, memo={"settings": {name: value}})])
        await context.sync()
        if answer is not None and live is not None:  # a process started meanwhile has the old value
            await live.keep_mark(name, value)
        return SetResult(applied="now" if answer is not None else "next_turn", value=value)

    def _check(self, name: str, value: str) -> None:
        can = self._context.backend.adapter.capabilities
        if name not in can.controls and self._live is not None:
            raise self._unsupported(name)
        modes = can.permission_modes
        if name == "permission_mode" and modes is not None and value not in modes:
            raise UsageError(
                f"backend {self._context.backend.name!r} has no permission mode {value!r}",
                hint=f"it has: {', '.join(modes) or 'none'}",
                param=name,
            )

    async def context_usage(self) -> ContextUsageResult:
        """Return how full the context is. Raises `UsageError(unsupported)` without a live process."""
        context, live = self._context, self._live
        context.check_open()
        if "context_usage" not in context.backend.adapter.capabilities.controls:
            raise self._unsupported("context_usage")
        if live is None or live.leaving:
            raise UsageError(
                f"session {context.id} has no live process, so its context_usage is unknown",
                kind="unsupported",
                hint="open the session with mode: live (clisup run --live), and send it a prompt first",
            )
        with trio.move_on_after(ANSWER_S) as waiting:
            answer = await self._ask("context_usage", None)
        if waiting.cancelled_caught:
            raise _late("context_usage")
        if answer is None:
            raise WorldError(
                "the live process has ended before it reported its context_usage", kind="unsupported", hint="try again"
            )
        if answer.error is not None:
            raise WorldError(
                f"the CLI did not report its context usage: {context.redact(answer.error)}",
                kind="unsupported",
                hint="see its log",
            )
        return ContextUsageResult(**context.backend.adapter.context_usage(answer.value))

    async def compact(self, params: CompactParams, actor: Actor) -> PromptResult:
        """Queue a turn to compact the CLI's context. Raises as a prompt does, and `UsageError(unsupported)`."""
        adapter = self._context.backend.adapter
        command = adapter.compact_prompt(params.instructions)
        if command is None or "compact" not in adapter.capabilities.controls:
            raise self._unsupported("compact")
        prompt = PromptParams(session_id=params.session_id, prompt=command, key=params.key)
        return await self._prompts.accept(prompt, actor, command=True)

    async def _ask(self, control: Control, value: str | None) -> ControlAnswer | None:
        """Return the live process's answer, or None without a live process or without an answer."""
        live = self._live
        if live is None or live.leaving:
            return None
        return await live.run.request(f"clisup-{uuid.uuid4()}", control, value)

    def _unsupported(self, what: str) -> UsageError:
        backend = self._context.backend
        can = ", ".join(backend.adapter.capabilities.controls) or "none"
        return UsageError(
            f"backend {backend.name!r} does not support {what}",
            kind="unsupported",
            hint=f"its controls: {can}; for those of the others see backend/list, or clisup backends --json",
        )


def _late(what: str) -> WorldError:
    return _overloaded(what, f"the CLI gave no answer within {ANSWER_S:g} s")


def _overloaded(what: str, why: str) -> WorldError:
    return WorldError(f"no answer to {what}: {why}", kind="overloaded", hint="try again")

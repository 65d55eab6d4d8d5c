"""What clients change in a session between prompts: its model and permission mode; and what they ask its live process."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

import structlog
import trio

from clisup.backends.base import Control, ControlAnswer
from clisup.daemon.sessions.recorder import Item
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.model.events import Actor, Notice
from clisup.wire.models import CompactParams, ContextUsageResult, PromptParams, PromptResult, SetResult

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["Controls"]

ANSWER_S = 30.0
"""How long the CLI may take to answer a request; claude 2.1.329 counts its context in about a second."""


MAX_OPEN = 8
"""Changes of a session that may wait for a CLI that does not answer."""
_log = structlog.get_logger()


class _Change:
    """What becomes of a change, for who asked for it, as long as there is somebody."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._outcome: SetResult | ClisupError | None = None

    def settle(self, outcome: SetResult | ClisupError) -> None:
        self._outcome = outcome
        self._done.set()

    async def result(self) -> SetResult:
        await self._done.wait()
        assert self._outcome is not None, "it is settled"
        if isinstance(self._outcome, ClisupError):
            raise self._outcome
        return self._outcome


class Controls:
    """The settings of one session, and the requests to its live process."""

    __slots__ = ("_open", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open = 0  # changes that the CLI has not answered yet

    async def set(self, name: Literal["model", "permission_mode"], value: str) -> SetResult:
        """Change a setting: of the live process at once, and of every process after it.

        What was asked goes on without its client, and however late the CLI answers: what it takes up is journaled.
        Raises `UsageError`: session_closed, unsupported, invalid_params (the CLI refuses it); `WorldError`.
        """
        self._session.shutdown.check_open()
        self._check(name, value)
        if self._open >= MAX_OPEN:
            raise _overloaded(name, f"it has not answered {MAX_OPEN} requests before this one")
        change = _Change()
        self._session.nursery.start_soon(self._take, change, name, value)
        with trio.move_on_after(ANSWER_S):
            return await change.result()
        raise _late(name)

    async def _take(self, change: _Change, name: Literal["model", "permission_mode"], value: str) -> None:
        self._open += 1
        try:
            change.settle(await self._set(name, value))
        except ClisupError as error:
            change.settle(error)
        except Exception:  # a fault in here is no end of the daemon
            _log.exception("request failed inside the daemon", method=f"session/set_{name}")
            change.settle(
                ClisupError(f"cannot set the {name}, because of a fault in the daemon", hint="its log says more")
            )
        finally:
            self._open -= 1

    async def _set(self, name: Literal["model", "permission_mode"], value: str) -> SetResult:
        session = self._session
        live = session.live
        answer = await self._ask(name, value)
        if answer is not None and answer.error is not None:
            raise UsageError(
                f"cannot set the {name} of session {session.id}, because the CLI says: {session.redact(answer.error)}",
                kind="invalid_params",
                hint="see backend/list, or clisup backends --json, for what the backend takes",
                param=name,
            )
        notice = Notice(code=f"{name}_set", message=f"the {name} is now {value}")
        session.recorder.record([Item(notice, memo={"settings": {name: value}})])
        await session.sync()
        if answer is not None and live is not None:  # not one that was started meanwhile, with the value of before
            await live.keep_mark(name, value)
        return SetResult(applied="now" if answer is not None else "next_turn", value=value)

    def _check(self, name: str, value: str) -> None:
        can = self._session.backend.adapter.capabilities
        if name not in can.controls and self._session.live is not None:
            raise self._unsupported(name)
        modes = can.permission_modes
        if name == "permission_mode" and modes is not None and value not in modes:
            raise UsageError(
                f"cannot use permission mode {value!r}, because backend {self._session.backend.name!r} does not have it",
                hint=f"it has: {', '.join(modes) or 'none'}",
                param=name,
            )

    async def context_usage(self) -> ContextUsageResult:
        """How full the context is. Raises `UsageError(unsupported)` where there is no live process that could tell."""
        session = self._session
        session.shutdown.check_open()
        if "context_usage" not in session.backend.adapter.capabilities.controls:
            raise self._unsupported("context_usage")
        if session.live is None or session.live.leaving:
            raise UsageError(
                f"cannot ask for context_usage, because session {session.id} has no live process now",
                kind="unsupported",
                hint="open the session with mode: live (clisup run --live), and send it a prompt first",
            )
        with trio.move_on_after(ANSWER_S) as waiting:
            answer = await self._ask("context_usage", None)
        if waiting.cancelled_caught:
            raise _late("context_usage")
        if answer is None:
            raise WorldError(
                "cannot get context_usage, because the live process has ended", kind="unsupported", hint="try again"
            )
        if answer.error is not None:
            raise WorldError(
                f"cannot tell the context's usage, because the CLI says: {session.redact(answer.error)}",
                kind="unsupported",
                hint="see its log",
            )
        return ContextUsageResult(**session.backend.adapter.context_usage(answer.value))

    async def compact(self, params: CompactParams, actor: Actor) -> PromptResult:
        """Have the CLI sum up its context, as a turn in the queue. Raises as a prompt does, and `UsageError(unsupported)`."""
        adapter = self._session.backend.adapter
        command = adapter.compact_prompt(params.instructions)
        if command is None or "compact" not in adapter.capabilities.controls:
            raise self._unsupported("compact")
        prompt = PromptParams(session_id=params.session_id, prompt=command, key=params.key)
        return await self._session.prompts.accept(prompt, actor, command=True)

    async def _ask(self, control: Control, value: str | None) -> ControlAnswer | None:
        """Return the live process's answer; None where there is no live process, or it ended before it answered."""
        live = self._session.live
        if live is None or live.leaving:
            return None
        return await live.run.ask(f"clisup-{uuid.uuid4()}", control, value)

    def _unsupported(self, what: str) -> UsageError:
        backend = self._session.backend
        can = ", ".join(backend.adapter.capabilities.controls) or "none"
        return UsageError(
            f"cannot use {what} with backend {backend.name!r}, because it has no such feature",
            kind="unsupported",
            hint=f"its controls: {can}; for those of the others see backend/list, or clisup backends --json",
        )


def _late(what: str) -> WorldError:
    return _overloaded(what, f"the CLI gave no answer within {ANSWER_S:g} s")


def _overloaded(what: str, why: str) -> WorldError:
    return WorldError(f"cannot get {what}, because {why}", kind="overloaded", hint="try again")

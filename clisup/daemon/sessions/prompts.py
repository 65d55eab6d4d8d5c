"""Where prompts come in: durable before they are accepted, each key once, and an honest word on what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import trio
from msgspec.structs import asdict

from clisup.daemon.sessions.recorder import Item
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.model.events import Actor, PromptAccepted
from clisup.model.prompts import content
from clisup.model.sessions.budget import ENDING
from clisup.wire.models import PromptParams, PromptResult

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["PromptDesk"]

KEPT_TEXT = 64 * 1024  # characters of a prompt that its turn need not read again


class PromptDesk:
    """Takes the prompts of one session, one after the other."""

    __slots__ = ("_lock", "_newest", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock: trio.Lock | None = None  # made with the first prompt: 0.2 KB of an idle session
        self._newest: tuple[str, dict[str, Any]] | None = None

    def take(self, turn_id: str) -> dict[str, Any] | None:
        """A prompt that starts at once, as it was stored a moment ago; None for any other, which is read from the disk."""
        newest, self._newest = self._newest, None
        return newest[1] if newest is not None and newest[0] == turn_id else None

    async def accept(self, params: PromptParams, actor: Actor, *, command: bool = False) -> PromptResult:
        """Accept a prompt: durable before the answer. The same `key` is the same turn, also after a restart.

        A `command` is one of the CLI's own, and goes to it as it is.
        Raises `UsageError`: invalid_params, session_closed, session_busy, unsupported, limit_exceeded,
        budget_exhausted; `WorldError`: storage_failed, rate_limited.
        """
        if not params.text.strip() and not params.tool_results:
            raise UsageError("cannot send an empty prompt", hint="give it at least one character", param="prompt")
        self._check_images(params)
        self._check_schema(params)
        self._check_own_loop(params)
        if self._lock is None:
            self._lock = trio.Lock()
        async with self._lock:
            self._session.shutdown.check_open()
            if params.key is not None and (known := self._known(params.key)) is not None:
                return known
            self._session.budgets.refuse(among=ENDING)
            if params.when_busy == "steer" and (steered := await self._steered(params, actor)) is not None:
                return steered
            self._check_room(params)
            self._session.budgets.refuse()
            if params.when_limited == "refuse":
                self._session.gate.refuse()
            return await self._enqueue(params, actor, _stored(params, actor, command=command))

    async def _steered(self, params: PromptParams, actor: Actor) -> PromptResult | None:
        steering = self._session.steering
        if not await steering.can():
            return None
        said = await steering.accept(_stored(params, actor), params.key, actor)
        if said is None:
            return None
        await self._session.sync()
        turn_id, prompt_id = said
        seq = self._session.ledger.steers[prompt_id]["seq"]
        return PromptResult(turn_id=turn_id, seq=seq, delivery="steered", prompt_id=prompt_id)

    def _known(self, key: str) -> PromptResult | None:
        """What the journal says of a key: the same turn again, or that its fate is not known, with the evidence."""
        ledger = self._session.ledger
        if (turn_id := ledger.keys.get(key)) is None:
            return None
        evidence = ledger.uncertain.get(turn_id)
        delivery: Literal["duplicate", "uncertain"] = "duplicate" if evidence is None else "uncertain"
        return PromptResult(turn_id=turn_id, seq=ledger.accepted[turn_id], delivery=delivery, evidence=evidence)

    async def _enqueue(self, params: PromptParams, actor: Actor, stored: dict[str, Any]) -> PromptResult:
        session, ledger = self._session, self._session.ledger
        turn_id = session.next_turn_id()
        try:
            with session.services.storage.watched():
                await trio.to_thread.run_sync(session.dir.save_prompt, turn_id, stored)
        finally:
            self._drop_if_closed(turn_id)
        waiting = len(ledger.queue) + (ledger.current is not None)
        held = session.gate.held()
        delivery: Literal["queued", "delivered"] = "queued" if waiting or held else "delivered"
        position = waiting or (held.position if held else None)
        accepted = PromptAccepted(key=params.key, delivery=delivery, position=position, actor=actor)
        try:
            seq = session.recorder.record([Item(accepted, turn_id)])
        except WorldError:
            session.dir.drop_prompt(turn_id)
            raise
        if delivery == "delivered" and len(params.text) <= KEPT_TEXT and not params.images:
            self._newest = (turn_id, stored)
        session.work_came()
        await session.sync()
        words = held.words() if held else None
        return PromptResult(turn_id=turn_id, seq=seq, delivery=delivery, position=position, held=words)

    def _check_images(self, params: PromptParams) -> None:
        """A backend that takes none, and sizes: what is wrong with an image itself, its model has said."""
        backend, limits = self._session.backend, self._session.services.config.daemon
        if not (images := params.images):
            return
        if not backend.adapter.capabilities.images:
            raise UsageError(
                f"cannot send an image to backend {backend.name}, because {backend.adapter.kind} takes none in its prompts",
                kind="unsupported",
                hint="send text alone, or take another backend: docs/backends.md says which take images",
                param="prompt",
            )
        if len(images) > limits.max_images:
            raise _too_much("max_images", limits.max_images, f"{len(images)} images in one prompt")
        for number, image in enumerate(images, 1):
            if image.size > limits.max_image_bytes:
                raise _too_much("max_image_bytes", limits.max_image_bytes, f"image {number} of {image.size} bytes")

    def _check_schema(self, params: PromptParams) -> None:
        """A backend that knows no such answers; and a steered prompt has no answer of its own."""
        if params.output_schema is None:
            return
        adapter = self._session.backend.adapter
        if not adapter.capabilities.structured:
            raise UsageError(
                f"cannot ask backend {self._session.backend.name} for an answer by a schema, because {adapter.kind} gives none",
                kind="unsupported",
                hint="ask for it in the prompt's words, or take a backend with `structured` in backend/list",
                param="output_schema",
            )
        if params.when_busy == "steer":
            raise UsageError(
                "cannot steer a prompt with an output_schema, because the running turn has an answer of its own",
                hint="use when_busy: queue",
                param="output_schema",
            )

    def _check_own_loop(self, params: PromptParams) -> None:
        """Refuse tools of the caller, their results, and sampling where the backend takes none, or not by these names."""
        backend, can = self._session.backend, self._session.backend.adapter.capabilities
        asked = params.sampling.model_dump(exclude_none=True) if params.sampling is not None else {}
        lacking = {
            "tools": [""] if params.tools and not can.caller_tools else [],
            "prompt": [""] if params.tool_results and not can.caller_tools else [],
            "sampling": [name for name in asked if name not in can.sampling],
        }
        words = {"tools": "tools of the caller", "prompt": "results of tools"}
        for param, names in lacking.items():
            if names:
                raise UsageError(
                    f"cannot prompt backend {backend.name} with {words.get(param, names[0])}, "
                    f"because {backend.adapter.kind} does not take that",
                    kind="unsupported",
                    hint="leave it out, or take another backend: backend/list says what each takes (caller_tools, sampling)",
                    param=param,
                )
        if params.when_busy == "steer" and (params.tools or asked):
            raise UsageError(
                "cannot steer a prompt with tools or sampling, because the running turn has its own",
                hint="use when_busy: queue",
                param="tools" if params.tools else "sampling",
            )

    def _drop_if_closed(self, turn_id: str) -> None:
        """While a prompt was being stored, the session may have been closed and its directory of prompts removed."""
        try:
            self._session.shutdown.check_open()
        except ClisupError:
            self._session.dir.drop_prompt(turn_id)
            raise

    def _check_room(self, params: PromptParams) -> None:
        session, ledger = self._session, self._session.ledger
        waiting = len(ledger.queue) + (ledger.current is not None)
        if not waiting:
            return
        if params.when_busy == "steer" and not session.live_mode:
            raise UsageError(
                "cannot steer the running turn, because its process serves that turn alone",
                kind="unsupported",
                hint="use when_busy: queue, or a live session (session/new mode: live, or clisup run --live)",
            )
        if params.when_busy == "refuse":
            raise UsageError(
                f"cannot prompt session {session.id} now, because a turn is running",
                kind="session_busy",
                hint="wait for turn_completed, or use when_busy: queue",
                queue_position=waiting,
            )
        limit = session.services.config.daemon.max_queue
        if waiting > limit:
            raise UsageError(
                f"cannot queue more prompts, because {waiting} wait already",
                kind="limit_exceeded",
                hint="wait, or raise daemon.max_queue",
                limit="max_queue",
                value=limit,
            )


def _stored(params: PromptParams, actor: Actor, *, command: bool = False) -> dict[str, Any]:
    """A prompt as it lies on disk until its turn is over."""
    stored: dict[str, Any] = {"text": params.text, "expand": params.expand, "actor": asdict(actor)}
    stored["when_limited"] = params.when_limited
    if command:
        stored["command"] = True
    if params.output_schema is not None:
        stored["output_schema"] = params.output_schema
    if params.tools:
        stored["tools"] = [tool.model_dump(exclude={"timeout_s"}) for tool in params.tools]
    if params.sampling is not None:
        stored["sampling"] = params.sampling.model_dump(exclude_none=True)
    if params.tool_results:
        stored["tool_results"] = [result.model_dump(exclude={"type"}) for result in params.tool_results]
    if params.images or params.cached:
        stored["content"] = content.stored(params.content, params.cached)
    return stored


def _too_much(limit: str, value: int, what: str) -> UsageError:
    return UsageError(
        f"cannot send {what}, because daemon.{limit} is {value}",
        hint=f"send less, or raise daemon.{limit}",
        param="prompt",
        limit=limit,
        value=value,
    )

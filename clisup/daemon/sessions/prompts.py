"""Queue of prompts: each prompt is durable before its acceptance, and each key is accepted once."""

from __future__ import annotations

from typing import Literal

import trio
from msgspec.structs import asdict

from clisup.daemon.journal.recorder import Item
from clisup.daemon.limits.budgets import Budgets
from clisup.daemon.limits.rate_limit_gate import RateLimitGate
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.steering import Steering
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.threads import in_thread
from clisup.model.events import Actor, PromptAccepted
from clisup.model.prompts import content
from clisup.model.prompts.kept import title_of
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.budget import ENDING
from clisup.model.sessions.turn_state import TurnState
from clisup.wire.params import PromptParams
from clisup.wire.results import PromptResult

__all__ = ["PromptQueue"]

TITLED_TEXT = 4096
"""Most characters of a prompt in which the title is sought."""

KEPT_TEXT = 64 * 1024
"""Most characters of a prompt that stays in memory for a turn that starts at once."""


class PromptQueue:
    """Accepts the prompts of a session, in order."""

    __slots__ = ("_budgets", "_context", "_gate", "_lock", "_newest", "_steering")

    def __init__(self, context: SessionContext, steering: Steering, budgets: Budgets, gate: RateLimitGate) -> None:
        self._context = context
        self._steering = steering
        self._budgets = budgets
        self._gate = gate
        self._lock = trio.Lock()
        self._newest: tuple[str, StoredPrompt] | None = None

    def take_newest(self, turn_id: str) -> StoredPrompt | None:
        """Return the newest prompt if it belongs to this turn. The caller reads other prompts from the disk."""
        newest, self._newest = self._newest, None
        return newest[1] if newest is not None and newest[0] == turn_id else None

    async def accept(self, params: PromptParams, actor: Actor, *, command: bool = False) -> PromptResult:
        """Accept a prompt: durable before the answer. The same `key` is the same turn, even after a restart.

        A `command` is a command of the CLI itself, and is passed on unchanged.
        Raises `UsageError`: invalid_params, session_closed, session_busy, unsupported, limit_exceeded,
        budget_exhausted; `WorldError`: storage_failed, rate_limited.
        """
        if not params.text.strip() and not params.tool_results:
            raise UsageError("the prompt is empty", hint="give it at least one character", param="prompt")
        self._check_images(params)
        self._check_schema(params)
        self._check_own_loop(params)
        async with self._lock:
            self._context.check_open()
            if params.key is not None and (known := self._known(params.key)) is not None:
                return known
            self._budgets.refuse(among=ENDING)
            if params.when_busy == "steer" and (steered := await self._steered(params, actor)) is not None:
                return steered
            self._check_room(params)
            self._budgets.refuse()
            if params.when_limited == "refuse":
                self._gate.refuse()
            return await self._enqueue(params, actor, _stored(params, actor, command=command))

    async def _steered(self, params: PromptParams, actor: Actor) -> PromptResult | None:
        if not await self._steering.is_possible():
            return None
        accepted = await self._steering.accept(_stored(params, actor), params.key, actor)
        if accepted is None:
            return None
        await self._context.sync()
        turn_id, prompt_id = accepted
        seq = self._context.ledger.steers[prompt_id]["seq"]
        return PromptResult(turn_id=turn_id, seq=seq, delivery="steered", prompt_id=prompt_id)

    def _known(self, key: str) -> PromptResult | None:
        """Return the turn of a known key, with the evidence if the prompt's delivery is uncertain."""
        ledger = self._context.ledger
        if (turn_id := ledger.keys.get(key)) is None:
            return None
        evidence = ledger.uncertain.get(turn_id)
        delivery: Literal["duplicate", "uncertain"] = "duplicate" if evidence is None else "uncertain"
        return PromptResult(turn_id=turn_id, seq=ledger.accepted[turn_id], delivery=delivery, evidence=evidence)

    async def _enqueue(self, params: PromptParams, actor: Actor, stored: StoredPrompt) -> PromptResult:
        context, ledger = self._context, self._context.ledger
        turn_id = context.next_turn_id()
        try:
            with context.services.storage.watched():
                kept, blob, digest = await in_thread(context.save_prompt, turn_id, stored)
        finally:
            self._drop_if_closed(turn_id)
        waiting = len(ledger.queue) + (ledger.current is not None)
        held = self._gate.held()
        delivery: Literal["queued", "delivered"] = "queued" if waiting or held else "delivered"
        position = waiting or (held.position if held else None)
        accepted = PromptAccepted(key=params.key, delivery=delivery, position=position, actor=actor, text=kept.text,
                                  images=kept.images, blob=blob)  # fmt: skip
        words = title_of(context.redact(params.text[:TITLED_TEXT])) if ledger.first_words is None else None
        memo = TurnState(prompt=(turn_id, digest))
        if words:
            memo["first_words"] = words
        try:
            seq = context.recorder.record([Item(accepted, turn_id, memo=memo)])
        except WorldError:
            context.dir.drop_prompt(turn_id)
            context.dir.drop_kept(turn_id)
            raise
        if delivery == "delivered" and len(params.text) <= KEPT_TEXT and not params.images:
            self._newest = (turn_id, stored)
        context.notify()
        await context.sync()
        hold = held.describe() if held else None
        return PromptResult(turn_id=turn_id, seq=seq, delivery=delivery, position=position, held=hold)

    def _check_images(self, params: PromptParams) -> None:
        """Refuse images that are too many or too large, or that the backend does not support."""
        backend, limits = self._context.backend, self._context.services.config.daemon
        if not (images := params.images):
            return
        if not self._context.capabilities.images:
            raise UsageError(
                f"backend {backend.name} takes no images in its prompts ({backend.adapter.lack('images')})",
                kind="unsupported",
                hint="send only text, or use another backend: docs/backends/README.md says which take images",
                param="prompt",
            )
        if len(images) > limits.max_images:
            raise _too_much("max_images", limits.max_images, f"{len(images)} images in one prompt")
        for number, image in enumerate(images, 1):
            if image.size > limits.max_image_bytes:
                raise _too_much("max_image_bytes", limits.max_image_bytes, f"image {number} of {image.size} bytes")

    def _check_schema(self, params: PromptParams) -> None:
        """Refuse an output schema that the backend does not support. A steered prompt has no answer of its own."""
        if params.output_schema is None:
            return
        backend = self._context.backend
        if not self._context.capabilities.structured:
            raise UsageError(
                f"backend {backend.name} takes no output_schema ({backend.adapter.lack('structured')})",
                kind="unsupported",
                hint="describe the form in the prompt, or use a backend with `structured` in backend/list",
                param="output_schema",
            )
        if params.when_busy == "steer":
            raise UsageError(
                "a prompt with an output_schema cannot be steered: the running turn has its own answer",
                hint="use when_busy: queue",
                param="output_schema",
            )

    def _check_own_loop(self, params: PromptParams) -> None:
        """Refuse tools of the caller, tool results, and sampling parameters that the backend does not support."""
        backend, can = self._context.backend, self._context.backend.adapter.capabilities
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
                    f"backend {backend.name} takes no {words.get(param, names[0])} ({backend.adapter.kind} has no such feature)",
                    kind="unsupported",
                    hint="leave it out, or use another backend: see caller_tools and sampling in backend/list",
                    param=param,
                )
        if params.when_busy == "steer" and (params.tools or asked):
            raise UsageError(
                "a prompt with tools or sampling cannot be steered: the running turn has its own",
                hint="use when_busy: queue",
                param="tools" if params.tools else "sampling",
            )

    def _drop_if_closed(self, turn_id: str) -> None:
        """Remove the prompt if the session was closed during the write."""
        try:
            self._context.check_open()
        except ClisupError:
            self._context.dir.drop_prompt(turn_id)
            self._context.dir.drop_kept(turn_id)
            raise

    def _check_steering(self) -> None:
        context = self._context
        if not context.backend.adapter.capabilities.steer:
            raise UsageError(
                f"the running turn cannot be steered: {context.backend.name} takes no prompt during a turn",
                kind="unsupported",
                hint="use when_busy: queue",
            )
        if not context.live_mode:
            raise UsageError(
                "the running turn cannot be steered: its process serves only that turn",
                kind="unsupported",
                hint="use when_busy: queue, or a live session (session/new mode: live, or clisup run --live)",
            )

    def _check_room(self, params: PromptParams) -> None:
        context, ledger = self._context, self._context.ledger
        waiting = len(ledger.queue) + (ledger.current is not None)
        if not waiting:
            return
        if params.when_busy == "steer":
            self._check_steering()
        if params.when_busy == "refuse":
            raise UsageError(
                f"session {context.id} is busy: a turn is running",
                kind="session_busy",
                hint="wait for turn_completed, or use when_busy: queue",
                queue_position=waiting,
            )
        limit = context.services.config.daemon.max_queue
        if waiting > limit:
            raise UsageError(
                f"the queue is full: {waiting} prompts wait already",
                kind="limit_exceeded",
                hint="wait, or raise daemon.max_queue",
                limit="max_queue",
                value=limit,
            )


def _stored(params: PromptParams, actor: Actor, *, command: bool = False) -> StoredPrompt:
    """Return the prompt in its stored form. The file stays until the turn ends."""
    stored: StoredPrompt = {"text": params.text, "expand": params.expand, "actor": asdict(actor)}
    stored["when_limited"] = params.when_limited
    if params.timeout_s is not None:
        stored["timeout_s"] = params.timeout_s
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
        f"{what}, but daemon.{limit} is {value}",
        hint=f"send less, or raise daemon.{limit}",
        param="prompt",
        limit=limit,
        value=value,
    )

"""Steering: a prompt sent to the CLI during another prompt's turn. The CLI reports afterwards which turn took it.

A CLI at a tool takes the prompt with the tool's result, in the same turn. While the model only writes, claude (2.1.329)
takes the prompt in a turn of its own right after, and codex (0.169.0) asks the model again at once. Until the CLI's
report, the prompt is an open steer of the ledger, and the daemon sends no other prompt.

claude begins a turn with a prompt that came too late. codex refuses such a prompt: a steer names its turn, so that no
other turn can take it. What a turn of codex did not take until its end is therefore queued.
"""

from __future__ import annotations

import uuid

import trio

from clisup.backends.base import LaunchRequest
from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.context import SessionContext
from clisup.daemon.sessions.launch import Launcher
from clisup.host.threads import in_thread
from clisup.model.events import Actor, Notice, PromptAccepted
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.ledger import TurnRecord
from clisup.model.sessions.turn_state import TurnState

__all__ = ["Steering", "stored_name"]

SETTLE_S = 10.0
"""Time for the CLI to begin a turn, and to report, after a turn, the fate of a prompt that the turn did not take."""

BEGIN_CHECK_S = 0.05  # a CLI may begin a turn without an event


def stored_name(prompt_id: str) -> str:
    """Return the name of a steered prompt's file beside the queued ones."""
    return f"steer-{prompt_id}"


class Steering:
    """Steered prompts of a session."""

    __slots__ = ("_context", "_launcher")

    def __init__(self, context: SessionContext, launcher: Launcher) -> None:
        self._context = context
        self._launcher = launcher

    async def is_possible(self) -> bool:
        """Tell whether a turn can be steered. Wait for a starting live process."""
        context = self._context
        if not context.backend.adapter.capabilities.steer:
            return False
        with trio.move_on_after(SETTLE_S):
            while context.live_mode and context.busy and (context.live_run is None or context.ledger.current is None):
                await context.recorder.news.wait()
        run = context.live_run
        return context.ledger.current is not None and run is not None and not run.ending

    async def accept(self, prompt: StoredPrompt, key: str | None, actor: Actor) -> tuple[str, str] | None:
        """Send a prompt into the running turn. Return (turn, prompt id), or None if the turn ended just before.

        Raises `ClisupError` if the prompt cannot be stored or the backend refuses the prompt.
        """
        context, run, turn = self._context, self._context.live_run, self._context.ledger.current
        if run is None or turn is None:
            return None
        prompt_id = str(uuid.uuid4())
        line = await self._text(run, turn, *await self._launcher.steering(prompt, prompt_id, run.number))
        if line is None:
            return None
        with context.services.storage.watched():
            kept, blob, digest = await in_thread(context.save_prompt, stored_name(prompt_id), prompt)
        event = PromptAccepted(key=key, delivery="steered", actor=actor, prompt_id=prompt_id, text=kept.text,
                               images=kept.images, blob=blob)  # fmt: skip
        still_running = lambda: context.ledger.current is turn and context.live_run is run and not run.ending  # noqa: E731
        if not await run.send(line, Item(event, turn.id, memo={"prompt": (prompt_id, digest)}), still_running):
            context.dir.drop_prompt(stored_name(prompt_id))
            context.dir.drop_kept(stored_name(prompt_id))
            return None
        return turn.id, prompt_id

    async def _text(self, run: Run, turn: TurnRecord, request: LaunchRequest, later: str) -> str | None:
        """Return the prompt as a message to the CLI. Wait until the CLI has begun the turn, for `SETTLE_S` at most."""
        text = run.steer_text(later, request)
        with trio.move_on_after(SETTLE_S):
            while text is None and self._context.ledger.current is turn and not run.ending:
                await trio.sleep(BEGIN_CHECK_S)
                text = run.steer_text(later, request)
        return text

    async def turn_of(self, prompt_id: str) -> str:
        """Wait for the turn that took a steered prompt, and return its id. A dropped prompt stays with the steered turn."""
        context = self._context
        turn_id = str(context.ledger.steers[prompt_id]["turn"])
        while True:
            await context.finished(turn_id)
            news = context.recorder.news
            steer = context.ledger.steers.get(prompt_id)  # None: ended long ago, and forgotten
            if steer is None or (steer.get("over") and steer["turn"] == turn_id):
                return turn_id
            if steer["turn"] == turn_id:
                await news.wait()
            turn_id = str(steer["turn"])

    # -- the end of a steered prompt
    async def wait_until_closed(self) -> None:
        """Wait until no steer is open, for `SETTLE_S` at most. Then drop the steers left open.

        If the CLI begins no turn with the prompts that its turn did not take, queue these prompts at once.
        """
        if not self._context.backend.adapter.begins_late_prompts:
            await self._close_late()
        with trio.move_on_after(SETTLE_S):
            while self._context.ledger.open_steers and self._context.ledger.current is None:
                await self._context.recorder.news.wait()
        if self._context.ledger.current is None and (left := self._context.ledger.open_steers):
            await self._drop(left, "the CLI said nothing of it")

    async def _close_late(self) -> None:
        """Queue the open steers of the last turn. An interrupt of the turn drops them."""
        ledger = self._context.ledger
        if ledger.last_turn is not None and ledger.last_turn["outcome"] == "interrupted":
            await self._drop(ledger.open_steers, _INTERRUPTED)
            return
        for prompt_id in ledger.open_steers:
            await self._queue(prompt_id)

    def dropped(self, given_up: frozenset[str]) -> list[Item]:
        """Return the ends of open steers that the CLI dropped with an interrupted turn."""
        left = [prompt_id for prompt_id in self._context.ledger.open_steers if prompt_id in given_up]
        return [_dropped(left, _INTERRUPTED)] if left else []

    async def process_gone(self) -> None:
        """Close the open steers of an ended process. Queue the prompts, unless the last turn may have taken them."""
        ledger = self._context.ledger
        if not (left := ledger.open_steers):
            return
        if ledger.current is not None or ledger.last_error is not None:
            await self._drop(left, "its process is gone, and whether the turn had taken it is not known")
            return
        for prompt_id in left:
            await self._queue(prompt_id)

    async def _queue(self, prompt_id: str) -> None:
        context, steer = self._context, self._context.ledger.steers[prompt_id]
        stored = await context.services.storage.with_retry(
            lambda: context.load_prompt(stored_name(prompt_id), prompt_id)
        )
        if stored is None:
            await self._drop([prompt_id], "its stored text is gone, or was changed outside of the daemon")
            return
        turn_id, kept = context.next_turn_id(), stored
        digest = await context.services.storage.with_retry(lambda: context.dir.save_prompt(turn_id, kept))
        position = context.ledger.late_prompts + 1
        event = PromptAccepted(key=steer.get("key"), delivery="queued", position=position, prompt_id=prompt_id)
        memo = TurnState(dropped=[prompt_id], prompt=(turn_id, digest))
        await context.recorder.record_with_retry(lambda: [Item(event, turn_id, memo=memo)])
        context.dir.drop_prompt(stored_name(prompt_id))

    async def _drop(self, prompt_ids: list[str], why: str) -> None:
        await self._context.recorder.record_with_retry(lambda: [_dropped(prompt_ids, why)])

    def forget_stored(self) -> None:
        """Remove the stored texts of closed steers."""
        for prompt_id, steer in self._context.ledger.steers.items():
            if steer.get("over"):
                self._context.dir.drop_prompt(stored_name(prompt_id))


_INTERRUPTED = "the turn it was meant for was interrupted"


def _dropped(prompt_ids: list[str], why: str) -> Item:
    notice = Notice(code="steer_dropped", message=f"prompt {', '.join(prompt_ids)} was not taken: {why}")
    return Item(notice, memo={"dropped": prompt_ids})

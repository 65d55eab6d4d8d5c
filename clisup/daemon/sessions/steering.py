"""Steering: a prompt that is said to the CLI while it works on another. It says afterwards which turn has taken it.

A CLI at a tool takes it up with the tool's result, in the same turn; one whose model only writes takes it in a turn of its own
right after (claude 2.1.329). Until it is known which, the prompt is an open steer of the ledger, and no other prompt is handed over.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import trio

from clisup.daemon.sessions.recorder import Item
from clisup.model.events import Actor, Notice, PromptAccepted

if TYPE_CHECKING:
    from clisup.daemon.sessions.session import Session

__all__ = ["Steering", "stored_name"]

SETTLE_S = 10.0
"""How long the CLI may take, after a turn, to say what it does with a prompt that the turn did not take."""


def stored_name(prompt_id: str) -> str:
    """Under which name a steered prompt is stored beside those of the queue."""
    return f"steer-{prompt_id}"


class Steering:
    """The steered prompts of one session."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    async def can(self) -> bool:
        """Is there a turn that can be steered? One whose live process is just being started is waited for."""
        session = self._session
        with trio.move_on_after(SETTLE_S):
            while session.live_mode and session.busy and (session.live is None or session.ledger.current is None):
                await session.recorder.news.wait()
        return session.ledger.current is not None and session.live is not None and not session.live.leaving

    async def accept(self, stored: dict[str, Any], key: str | None, actor: Actor) -> tuple[str, str] | None:
        """Say a prompt into the running turn: (turn, prompt id). None where the turn was over in the last moment.

        Raises `ClisupError` where the prompt cannot be stored or the backend refuses it.
        """
        session, live, turn = self._session, self._session.live, self._session.ledger.current
        if live is None or turn is None:
            return None
        prompt_id = str(uuid.uuid4())
        line = await session.launcher.line(stored, prompt_id, live.run.number)
        with session.services.storage.watched():
            await trio.to_thread.run_sync(session.dir.save_prompt, stored_name(prompt_id), stored)
        event = PromptAccepted(key=key, delivery="steered", actor=actor, prompt_id=prompt_id)
        running = lambda: session.ledger.current is turn and not live.leaving  # noqa: E731
        if not await live.run.say(line, Item(event, turn.id), running):
            session.dir.drop_prompt(stored_name(prompt_id))
            return None
        return turn.id, prompt_id

    async def turn_of(self, prompt_id: str) -> str:
        """The turn that took a steered prompt, when that is known and it has ended; else the one that it was meant for."""
        session = self._session
        turn_id = str(session.ledger.steers[prompt_id]["turn"])
        while True:
            await session.finished(turn_id)
            news = session.recorder.news
            steer = session.ledger.steers.get(prompt_id)  # long done with, it is forgotten
            if steer is None or (steer.get("over") and steer["turn"] == turn_id):
                return turn_id
            if steer["turn"] == turn_id:
                await news.wait()
            turn_id = str(steer["turn"])

    # -- what becomes of them

    async def settle(self) -> None:
        """Before another prompt is handed over: wait until none is open, or for `SETTLE_S`."""
        with trio.move_on_after(SETTLE_S):
            while self._session.ledger.open_steers and self._session.ledger.current is None:
                await self._session.recorder.news.wait()
        if self._session.ledger.current is None and (left := self._session.ledger.open_steers):
            await self._drop(left, "the CLI said nothing of it")

    def dropped(self, given_up: frozenset[str]) -> list[Item]:
        """The CLI has nothing left to do: of what no turn took, this it has given up with an interrupted turn."""
        left = [prompt_id for prompt_id in self._session.ledger.open_steers if prompt_id in given_up]
        return [_dropped(left, "the turn it was meant for was interrupted")] if left else []

    async def process_gone(self) -> None:
        """The process has ended. What it had not begun is queued; what it may have taken shares the fate of its turn."""
        ledger = self._session.ledger
        if not (left := ledger.open_steers):
            return
        if ledger.current is not None or ledger.last_error is not None:
            await self._drop(left, "its process is gone, and whether the turn had taken it is not known")
            return
        for prompt_id in left:
            await self._queue(prompt_id)

    async def _queue(self, prompt_id: str) -> None:
        session, steer = self._session, self._session.ledger.steers[prompt_id]
        stored = await session.services.storage.surely(lambda: session.dir.load_prompt(stored_name(prompt_id)))
        if stored is None:
            await self._drop([prompt_id], "its stored text is gone")
            return
        turn_id, kept = session.next_turn_id(), stored
        await session.services.storage.surely(lambda: session.dir.save_prompt(turn_id, kept))
        position = len(session.ledger.queue) + 1
        event = PromptAccepted(key=steer.get("key"), delivery="queued", position=position, prompt_id=prompt_id)
        await session.recorder.record_surely(lambda: [Item(event, turn_id, memo={"dropped": [prompt_id]})])
        session.dir.drop_prompt(stored_name(prompt_id))

    async def _drop(self, prompt_ids: list[str], why: str) -> None:
        await self._session.recorder.record_surely(lambda: [_dropped(prompt_ids, why)])

    def forget_stored(self) -> None:
        """Remove the stored texts of those that are done with."""
        for prompt_id, steer in self._session.ledger.steers.items():
            if steer.get("over"):
                self._session.dir.drop_prompt(stored_name(prompt_id))


def _dropped(prompt_ids: list[str], why: str) -> Item:
    notice = Notice(code="steer_dropped", message=f"prompt {', '.join(prompt_ids)} was not taken: {why}")
    return Item(notice, memo={"dropped": prompt_ids})

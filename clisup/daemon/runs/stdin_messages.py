"""What the daemon says on a CLI's stdin of its own accord: a prompt for a live process, an answer, a request.

Each message is journaled with its id before the keeper gets it, and its text waits in a file until the CLI's stdin has it: so
it comes there once, also where the daemon dies at any moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio
from msgspec.structs import replace

from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.keeper_link import Leash
from clisup.daemon.sessions.recorder import Item
from clisup.daemon.storage import STORAGE_RETRY_S
from clisup.errors import WorldError
from clisup.host.failpoints import failpoint
from clisup.store.session_dir import RunDir

__all__ = ["Speaker", "Speech"]


class Speaker(Protocol):
    """What the speech asks of its run."""

    @property
    def says(self) -> Sequence[Sequence[Any]]:
        """What was said, as the ledger knows it: [id, name of the text's file]."""

    @property
    def decoded_to(self) -> int:
        """The end of the last stdout line that was decoded."""

    def record(self, item: Item) -> None:
        """Journal one item at once. Raises `WorldError(storage_failed)`."""


class Speech:
    """One run's. `say` may be called from several tasks."""

    def __init__(self, run: Speaker, run_dir: RunDir, leash: Leash, batch: Batch) -> None:
        self._run = run
        self._batch = batch
        self._dir = run_dir
        self._leash = leash
        self._heard = 0  # the highest id that the CLI's stdin has, as far as the keeper has told

    async def say(self, text: str, item: Callable[[], Item], ready: Callable[[], bool]) -> bool:
        """Journal `item()` and say `text` (whole lines). False where the run has ended, or `ready` says no in the last moment."""
        token = uuid.uuid4().hex
        await self._batch.surely(lambda: self._dir.save_said(token, text))
        while True:
            await self._leash.ready()
            await self._batch.store()
            try:
                said = self._say_now(text, token, item, ready)
            except WorldError:  # the journal took nothing; the next flush waits for the disk
                await trio.sleep(STORAGE_RETRY_S)
                await self._batch.surely(lambda: self._dir.save_said(token, text))
                continue
            if not said:
                self._dir.drop_said(token)
            return said

    def _say_now(self, text: str, token: str, item: Callable[[], Item], ready: Callable[[], bool]) -> bool:
        """Id, journal and leash in one step: a later id must not come to the keeper first."""
        number = self._leash.take_id(self._run.decoded_to)
        if number is None or not ready():
            return False
        said = item()
        memo = {**(said.memo or {}), "say": [number, token], "heard": self._heard}
        self._run.record(replace(said, memo=memo))
        failpoint("say.journaled")
        self._leash.say(number, text)
        return True

    def repeat(self) -> None:
        """What a daemon before this one had said. The keeper knows what of it the CLI has had."""
        for number, token in self._run.says:
            if (text := self._dir.load_said(token)) is not None:
                self._leash.say(number, text)

    def heard(self, number: int) -> None:
        """The CLI's stdin has every message up to this id: what was kept of them for a restart may go."""
        self._heard = max(self._heard, number)
        for said, token in self._run.says:
            if said <= number:
                self._dir.drop_said(token)

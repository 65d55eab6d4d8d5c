"""How keepers are started: forked by the keeper zygote where there is one, each by itself where there is none.

A run has one keeper at most, whichever way and however often one is started for it: a keeper takes the lock of the run or
leaves, and one that finds the mark of an earlier one leaves, too. So a start of which nobody says that it happened may be
made again; its pipes say when that is so.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import msgspec
import structlog
import trio

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.process.keepers import KeeperProcess, start_keeper
from clisup.host.process.zygote import ForkedKeeper, KeeperZygote

__all__ = ["KeeperStart", "KeeperStarts"]

UP_LIMIT_S = 20.0  # for a zygote to come up: as long as a keeper has for its first word
FORK_LIMIT_S = (
    5.0  # for its answer; one that is stopped or hangs is killed then, and its questions are asked another way
)
FIRST_PAUSE_S = 0.1  # before another zygote; doubled with each, up to the next line
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0  # a zygote that lived so long was no failure: the pauses begin anew
TAKEN = ("locked", "started", "exited")  # what a keeper says that finds an earlier one, or its traces
_log = structlog.get_logger()


class KeeperStart(NamedTuple):
    """The keeper's first word (`{"ready": ...}`, `{"error": ...}`; empty: the run's directory tells), and its pid for people.

    `not_forked` says why the zygote was asked in vain.
    """

    word: dict[str, Any]
    pid: int | None
    not_forked: str | None = None


class KeeperStarts:
    """Starts the keepers of one daemon. `run` has the zygote at hand; without it, or before it is up, all works as well."""

    def __init__(self, keeper_file: str) -> None:
        self._keeper_file = keeper_file
        self._zygote: KeeperZygote | None = None

    async def run(self) -> None:
        """Until cancelled; the zygote leaves then. One that is lost is followed by another."""
        pause = FIRST_PAUSE_S
        while True:
            began = clock.monotonic()
            error = await self._keep_one()
            if clock.monotonic() - began > STEADY_S:
                pause = FIRST_PAUSE_S
            _log.warning("keeper zygote lost", error=error, again_in_s=pause)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _keep_one(self) -> str:
        """Have one, for as long as it lives. Gives what became of it."""
        try:
            zygote = KeeperZygote(self._keeper_file)
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        try:
            up = False
            with trio.move_on_after(UP_LIMIT_S):
                up = await zygote.up()
            if not up:
                return "did not come up"
            _log.debug("keeper zygote started", pid=zygote.pid)
            self._zygote = zygote
            await zygote.heed()
            return "was killed, or left"
        finally:
            self._zygote = None
            with trio.CancelScope(shield=True):
                await zygote.end()

    async def start(self, spec: dict[str, Any], reaping: trio.Nursery) -> KeeperStart:
        """Start a run's keeper and wait for its first word. Raises `WorldError(spawn_failed)` where no process can be started.

        `reaping` is where a zombie is waited for.
        """
        data = _encoded(spec)
        try:
            failpoint("spawn.before")
            forked = self._zygote.fork() if self._zygote is not None else None
            itself = self._start_by_itself(reaping) if forked is None else None
            failpoint("spawn.after")
            if forked is not None and (word := await _word_of(forked, data)) is not None:
                return KeeperStart(word, forked.pid)
            keeper = itself or self._start_by_itself(reaping)
            word = await keeper.pipes.hand_over(data) or {}
            if forked is None:
                return KeeperStart(word, keeper.pid)
            why = os.strerror(forked.error) if forked.error else "nobody has it any more"
            return KeeperStart({} if word.get("error") in TAKEN else word, keeper.pid, why)
        except OSError as error:
            raise WorldError(
                f"cannot start a keeper: {error.strerror}", kind="spawn_failed", hint="see the limits of the daemon"
            ) from None

    def _start_by_itself(self, reaping: trio.Nursery) -> KeeperProcess:
        keeper = start_keeper(self._keeper_file)
        reaping.start_soon(keeper.reap)
        return keeper


def _encoded(spec: dict[str, Any]) -> bytes:
    """Only `json` knows bytes that are no UTF-8, which an environment may hold; for a prompt of 16 MiB it takes ten times as long."""
    try:
        return msgspec.json.encode(spec)
    except UnicodeEncodeError:
        return json.dumps(spec).encode()


async def _word_of(keeper: ForkedKeeper, spec: bytes) -> dict[str, Any] | None:
    """As `hand_over`; a zygote that does not even answer is killed meanwhile, so that the pipes can tell."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, keeper)
        word = await keeper.pipes.hand_over(spec)
        nursery.cancel_scope.cancel()
    return word


async def _watch(keeper: ForkedKeeper) -> None:
    with trio.move_on_after(FORK_LIMIT_S):
        await keeper.answered.wait()
    if not keeper.answered.is_set():
        keeper.give_up()

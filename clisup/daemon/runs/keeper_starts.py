"""Start of keepers: by the keeper zygote, or one by one without a zygote.

A run has at most one keeper, however often a start is tried. A keeper takes the lock of the run or exits. A keeper also
exits at the start record of an earlier keeper. So an unconfirmed start may be repeated, once the pipes show that no
keeper holds them.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import msgspec
import trio

from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.log import event_logger
from clisup.host.process.helpers import HELPERS
from clisup.host.process.keepers import KEEPER_FILE, ForkedKeeper, KeeperProcess, KeeperZygote, start_keeper

__all__ = ["KeeperStart", "KeeperStarts"]

UP_LIMIT_S = 20.0  # for the start of a zygote: as long as a keeper has for its first message
FORK_LIMIT_S = 5.0  # for a zygote's answer: a silent zygote is killed, and its requests are tried again
FIRST_PAUSE_S = 0.1  # before another zygote; doubled each time, up to LONGEST_PAUSE_S
LONGEST_PAUSE_S = 60.0
STEADY_S = 60.0  # a zygote with this lifetime was no failure: the pauses begin again
TAKEN = ("locked", "started", "exited")  # answers of a keeper that finds an earlier keeper or its traces
_log = event_logger()


class KeeperStart(NamedTuple):
    """Result of a start: the keeper's first message, and the pid for the log.

    The message is `{"ready": ...}` or `{"error": ...}`. After an empty message the run's directory shows the result.
    `not_forked` is the reason for a failure of the zygote.
    """

    word: dict[str, Any]
    pid: int | None
    not_forked: str | None = None


class KeeperStarts:
    """Starter of the keepers of one daemon. `run` keeps a zygote, also for helpers; starts also work without a zygote."""

    def __init__(self, keeper_file: str = KEEPER_FILE) -> None:
        self._keeper_file = keeper_file
        self._zygote: KeeperZygote | None = None

    async def run(self) -> None:
        """Keep a zygote until cancelled. Replace a lost zygote."""
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
        """Keep one zygote until its end. Return the reason for the end."""
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
            self._zygote = HELPERS.zygote = zygote
            await zygote.receive_answers()
            return "was killed, or left"
        finally:
            self._zygote = HELPERS.zygote = None
            with trio.CancelScope(shield=True):
                await zygote.end()

    async def start(self, spec: dict[str, Any], reaping: trio.Nursery) -> KeeperStart:
        """Start a run's keeper and wait for its first message. `reaping` reaps the zombies.

        Raises `WorldError(spawn_failed)` if no process can be started.
        """
        data = _encoded(spec)
        try:
            failpoint("spawn.before")
            forked = self._zygote.fork() if self._zygote is not None else None
            itself = self._start_by_itself(reaping) if forked is None else None
            failpoint("spawn.after")
            if forked is not None and (word := await _hand_over(forked, data)) is not None:
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
    """Encode a spec. msgspec is ten times faster for a prompt of 16 MiB, but refuses an environment outside UTF-8."""
    try:
        return msgspec.json.encode(spec)
    except UnicodeEncodeError:
        return json.dumps(spec).encode()


async def _hand_over(keeper: ForkedKeeper, spec: bytes) -> dict[str, Any] | None:
    """Hand the spec over, as `KeeperPipes.hand_over`. Kill a zygote without an answer, so that the pipes show the result."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_kill_without_answer, keeper)
        word = await keeper.pipes.hand_over(spec)
        nursery.cancel_scope.cancel()
    return word


async def _kill_without_answer(keeper: ForkedKeeper) -> None:
    with trio.move_on_after(FORK_LIMIT_S):
        await keeper.answered.wait()
    if not keeper.answered.is_set():
        keeper.kill_zygote()

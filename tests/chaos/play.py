"""One session from its opening to the verdict on its log, whatever becomes of its daemons meanwhile."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from clisup.errors import ClisupError
from clisup.host.locks import lock_holder
from tests.chaos import compare
from tests.chaos.clients import BlockingFollower, Heard, Talk, TrioFollower
from tests.chaos.compare import Counts, Turn
from tests.chaos.lives import Ground
from tests.chaos.scripts import Kind, Script
from tests.chaos.spools import Spools

__all__ = ["PATIENCE_S", "Play", "Played"]

PATIENCE_S = 180.0
"""For one answer or one turn's end, under fire: beyond it the turn counts as lost."""
_LOOK_S = 0.03
_QUEUED = b'"queued"'  # the state of a prompt that a live CLI has taken in


@dataclass
class Played:
    """What came of a session."""

    turns: list[Turn]
    counts: Counts
    events: int = 0
    bytes: int = 0


class Play:
    """Plays the scripts of a kind in a new session. `model` is the undisturbed run's; without one, this is that run."""

    def __init__(self, ground: Ground, talk: Talk, kind: Kind, session_id: str, chance: random.Random) -> None:
        self._ground, self._talk, self._kind = ground, talk, kind
        self.id = session_id
        self.dir = ground.state / "sessions" / session_id
        self.cwd = ground.cwd / session_id
        self._spools = Spools(self.dir)
        self._one = BlockingFollower(talk.path, session_id, talk.up)
        self._other = TrioFollower(talk.path, session_id, talk.up, chance)
        self._sent = 0
        self._ended = self._exits = self._answered = 0

    async def run(self, model: list[Turn] | None, enough: Callable[[], bool], scripts: int) -> Played:
        """All scripts, or as many as there are until it is `enough`."""
        try:
            await self._open()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._one.run)
                nursery.start_soon(self._other.run)
                for batch in _batches(self._kind.scripts[:scripts]):
                    if not enough() or not self._sent:
                        await self._play(batch)
                await self._call("session/close")
                await self._until(lambda: self._one.heard.closed and self._other.heard.closed, "its close is heard")
                nursery.cancel_scope.cancel()
            return await self._verdict(model)
        except (AssertionError, ClisupError, ExceptionGroup) as error:
            counts = Counts()
            counts.add("lost", 1, f"{self.where}: {_first(error)!r}")
            return Played([], counts)

    @property
    def where(self) -> str:
        return f"{self._kind.name} {self.id[-6:]}"

    @property
    def directories(self) -> list[Path]:
        """All that is there of it: the daemon's files, its own, and the CLI's transcript."""
        return [self.dir, self.cwd, *self._ground.root.glob(f"home/.local/state/clisup-demo/projects/*{self.id}")]

    async def _call(self, method: str, **params: Any) -> Any:
        with trio.move_on_after(PATIENCE_S):
            return await self._talk.call(method, session_id=self.id, **params)
        raise AssertionError(f"no answer to {method} {params.get('key', '')}")

    async def _until(self, what: Callable[[], Any], why: str) -> Any:
        """Poll until it is true, or a follower was refused."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                assert not (refused := self._one.heard.refused or self._other.heard.refused), refused
                if value := what():
                    return value
                await trio.sleep(_LOOK_S)
        raise AssertionError(f"waited in vain: {why}")

    async def _open(self) -> None:
        self._ground.cast.prepare(self.cwd)
        timeouts = self._kind.timeouts or {}
        about = {"cwd": str(self.cwd), "timeouts": timeouts, "mode": self._kind.mode, **self._ground.cast.params}
        await self._call("session/new", backend=self._ground.cast.backend, **about)

    # -- turns -------------------------------------------------------------------------------------------------------

    async def _play(self, batch: list[Script]) -> None:
        """Send the prompts of a batch one after the other, do to each what is to be done, and have each one answered."""
        first = self._sent
        self._spools.mark()
        for number, script in enumerate(batch, first):
            if script.steer:
                await self._steer(batch[number - first - 1], script, number)
                continue
            accepted = await self._call("session/prompt", prompt=script.prompt(number), key=f"key-{number}")
            self._sent += 1
            await self._answer(script)
            if script.act and script.act != "kill cli at rest":
                await self._from_outside(script, accepted["turn_id"])
        for number, script in enumerate(batch, first):
            await self._call("session/prompt", prompt=script.prompt(number), key=f"key-{number}", wait=True)
            self._ended += script.turns
            self._exits += script.exit is not None
        await self._until(lambda: self._one.heard.turns_ended >= self._ended, f"the end of turn {self._ended}")
        if batch[-1].act == "kill cli at rest":
            await self._kill_cli()
        await self._until(lambda: self._one.heard.exits >= self._exits, f"exit {self._exits}")
        await trio.sleep(batch[-1].rest_s)

    async def _steer(self, running: Script, script: Script, number: int) -> None:
        """Say a prompt into a turn that waits at its gate; open that when the CLI has it."""
        run = await self._until(lambda: self._ready(running), f"prompt {number - 1} is ready to be steered")
        queued = self._spools.said(run).count(_QUEUED)
        steered = {"prompt": script.prompt(number), "key": f"key-{number}", "when_busy": "steer"}
        await self._call("session/prompt", **steered)
        await self._until(lambda: self._spools.said(run).count(_QUEUED) > queued, f"the CLI has prompt {number}")
        await self._call("session/prompt", **steered)
        self._sent += 1
        (self.cwd / f"gate-{number - 1}").touch()

    async def _answer(self, script: Script) -> None:
        """Say what is to be said to the tool calls that ask; an answer that was lost on its way back has been given."""
        asked = self._one.heard.asked
        for decision in (*script.answers, *([None] * script.asked)):
            self._answered += 1
            await self._until(lambda: len(asked) >= self._answered, f"question {self._answered}")
            if decision is None:
                continue
            try:
                await self._call("approval/respond", approval_id=asked[self._answered - 1], decision=decision)
            except ClisupError as error:
                if error.kind != "approval_already_resolved":
                    raise

    async def _from_outside(self, script: Script, turn_id: str) -> None:
        run = await self._until(lambda: self._ready(script), f"{turn_id} is ready to be ended")
        if script.act == "kill keeper":
            if (keeper := lock_holder(str(run / "keeper.lock"))) is not None:
                os.kill(keeper, signal.SIGKILL)
            return None
        if script.act == "kill cli":
            return await self._kill_cli()
        try:
            mode = "kill" if script.act == "interrupt" else "graceful"
            await self._call("session/interrupt", turn_id=turn_id, mode=mode)
        except ClisupError as error:  # an answer was lost, and the turn has ended since
            if error.kind != "turn_not_found":
                raise

    def _ready(self, script: Script) -> Path | None:
        """The directory of the run of the last prompt, when it has said all that it is going to say."""
        if (run := self._spools.last) is None:
            return None
        said, (words, times) = self._spools.said(run), script.ready
        ran = not script.witness or (self.cwd / f"ran-{self._sent - 1}").exists()
        return run if ran and said.count(words) == times and said.endswith(b"\n") else None

    async def _kill_cli(self) -> None:
        while (pid := (await self._call("session/get"))["pid"]) is None:
            await trio.sleep(_LOOK_S)
        self._kill(pid)

    def _kill(self, pid: int) -> None:
        """Kill one of ours; its pid may be another's by now."""
        try:
            marks = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return
        if str(self._ground.root).encode() in marks:
            os.kill(pid, signal.SIGKILL)

    # -- the verdict -------------------------------------------------------------------------------------------------

    async def _verdict(self, model: list[Turn] | None) -> Played:
        """Read everything again, from the beginning, and compare."""
        replay = TrioFollower(self._talk.path, self.id, self._talk.up)
        with trio.move_on_after(PATIENCE_S):
            await replay.run()
        log, last = replay.heard.events, replay.heard.last
        counts = compare.heard(f"{self.where} replay", replay.heard.seqs, last)
        for who, heard in (("blocking follower", self._one.heard), ("trio follower", self._other.heard)):
            counts += self._heard_same(f"{self.where} {who}", heard, log, last)
        counts += compare.same_events(f"{self.where} session/events", await self._pages(), log)
        events = [json.loads(log[seq]) for seq in sorted(log)]
        turns = compare.turns_of(events, await self._blobs(events))
        scripts = self._kind.scripts[: self._sent]
        counts += compare.against(self.where, turns, turns if model is None else model, scripts)
        found = {int(path.name[4:]): path.read_text() for path in self.cwd.glob("ran-*")}
        counts += compare.witnessed(self.where, found, self._sent)
        counts += self._ground.cast.asked(self.where, self.id, self._sent)
        return Played(turns, counts, len(log), sum(map(len, log.values())))

    @staticmethod
    def _heard_same(who: str, heard: Heard, log: dict[int, bytes], last: int) -> Counts:
        counts = compare.heard(who, heard.seqs, last)
        counts += compare.same_bytes(who, heard.events, log)
        return counts

    async def _pages(self) -> list[dict[str, Any]]:
        pages: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next_seq": 1, "eof": False}
        while not page["eof"]:
            page = await self._call("session/events", after_seq=page["next_seq"] - 1, limit=1000)
            pages += page["events"]
        return pages

    async def _blobs(self, events: list[dict[str, Any]]) -> dict[str, str]:
        """What stands for the contents of each blob; a raw line is the CLI's own, with ids of its own."""
        names = {event["blob"] for event in events if event.get("blob")}
        names |= {block["blob"] for event in events for block in event.get("blocks", ()) if block.get("blob")}
        digests = {}
        for name in names:
            digests[name] = "raw"
            if not name.startswith("raw-"):
                page = await self._call("session/blob", blob=name)
                data = base64.b64decode(page["data_base64"])
                digests[name] = f"{len(data)} of {page['size']} {hashlib.sha256(data).hexdigest()}"
        return digests


def _batches(scripts: tuple[Script, ...]) -> list[list[Script]]:
    batches: list[list[Script]] = []
    for script in scripts:
        if script.together and batches:
            batches[-1].append(script)
        else:
            batches.append([script])
    return batches


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

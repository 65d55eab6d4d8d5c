"""`make chaos`: kill the daemon at every failpoint and at random, under 20 busy sessions; print what was lost. Exit 1 if anything.

    python -m tests.chaos.run [--json PATH] [--keep]

In the environment: `CLI` (demo, or codex: the real one, live, in front of a fake of its API), `KILLS` (200), `SESSIONS`
(20, of codex 6), `SEED` (a random one), `COPY=1` (daemons on copies of the state directory run meanwhile),
`FILES` (the limit of open files of every daemon; 6 sessions), and
`SABOTAGE=rewind|skip|ahead|shuffle|exits`, which breaks the daemon so that events are doubled, lost or reordered, or exits
are wrong: the run must then fail.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import trio

from tests.chaos import report
from tests.chaos.cast import Cast
from tests.chaos.clients import Talk, Up
from tests.chaos.codex import CodexCast
from tests.chaos.compare import Counts, Turn
from tests.chaos.copies import Copies
from tests.chaos.lives import COLD, Ground, Killer
from tests.chaos.plan import Plan, placed
from tests.chaos.play import Play
from tests.chaos.sabotage import SABOTAGES

__all__ = ["Chaos", "Settings", "reference"]

PROGRESS_S = 5.0
ALL_STRUCK_FROM = 200  # kills: so many must have met every failpoint

CASTS: dict[str, type[Cast]] = {"demo": Cast, "codex": CodexCast}

Model = dict[str, list[Turn]]


@dataclass(frozen=True)
class Settings:
    """What is asked for. `scripts` of each kind are played in a session, then a new one is opened."""

    kills: int = 200
    sessions: int = 20
    seed: int = 0
    sabotage: str = ""
    scripts: int = 6
    cli: str = "demo"
    cold: float = COLD
    copy: bool = False
    files: int = 0
    keep: bool = False

    def cast(self) -> Cast:
        """Who plays."""
        return CASTS[self.cli]()

    def chance(self, *what: object) -> random.Random:
        """Random numbers of their own for each part, so that one does not disturb another's."""
        return random.Random(f"{self.seed} {what}")


class _Ids:
    """Ids of sessions: the same beginning, as a CLI that crashes may say half of one; else this run's own."""

    def __init__(self) -> None:
        self._middle, self._last = secrets.token_hex(6), 0

    def next(self) -> str:
        self._last += 1
        return f"c1a05000-{self._middle[:4]}-4{self._middle[4:7]}-8{self._middle[7:10]}-{self._last:012x}"


async def reference(settings: Settings) -> tuple[Model, Counts]:
    """The undisturbed run: each kind once, on a daemon that nobody kills."""
    ground, up, ids = Ground(settings.cast()), Up(), _Ids()
    kinds = {kind.name: kind for kind in map(ground.cast.kind_of, range(settings.sessions))}
    model: Model = {}
    counts = Counts()
    try:
        ground.live()
        killer = Killer(ground, up, Plan((), settings.chance()), 0, settings.chance(), 0)
        await killer.wait_up()

        async def one(name: str) -> None:
            nonlocal counts
            play = Play(ground, Talk(ground.socket, up), kinds[name], ids.next(), settings.chance("reference", name))
            played = await play.run(None, lambda: False, settings.scripts)
            model[name] = played.turns
            counts += played.counts

        async with trio.open_nursery() as nursery:
            for name in sorted(kinds):
                nursery.start_soon(one, name)
    finally:
        await trio.to_thread.run_sync(ground.close)
    return model, counts


class Chaos:
    """One run: the ground, the killer and the sessions."""

    def __init__(self, settings: Settings, model: Model) -> None:
        self.settings, self.model = settings, model
        self.ground, self.up, self._ids = Ground(settings.cast(), settings.sabotage, settings.files), Up(), _Ids()
        names = [name for name in placed() if not name.startswith(self.ground.cast.not_met)]
        plan = Plan(names, settings.chance("plan"))
        cold = 0 if settings.sabotage else settings.cold  # only a zygote's children can be broken
        self.killer = Killer(self.ground, self.up, plan, settings.kills, settings.chance("lives"), cold)
        self.killer.give_up = self._seen_enough
        self.copies = Copies(self.ground) if settings.copy else None
        self.counts = Counts()
        self.turns = self.sessions = self.events = self.bytes = 0
        self.faults = ""
        self._over = 0  # slots that have come to their end
        self._began = time.monotonic()

    def _seen_enough(self) -> bool:
        """Of a sabotaged daemon, the first fault is enough."""
        return bool(self.settings.sabotage) and not self.counts.clean

    async def run(self) -> Counts:
        """To the end of the last session. What a daemon's log says of faults of its own is in `faults`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._progress)
                await self._sessions_and_killer()
                nursery.cancel_scope.cancel()
        finally:
            self.faults = await trio.to_thread.run_sync(self._close)
        return self.counts

    async def _sessions_and_killer(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.killer.rampage)
            for slot in range(self.settings.sessions):
                nursery.start_soon(self._slot, slot)
            if self.copies is not None:
                nursery.start_soon(self.copies.run, self.killer.done.is_set)
            if self.settings.sabotage:
                nursery.start_soon(self._stop_when_seen, nursery)

    async def _stop_when_seen(self, nursery: trio.Nursery) -> None:
        while not (self._seen_enough() or self._over == self.settings.sessions):
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()

    async def _slot(self, slot: int) -> None:
        """One session after the other, until the kills are done."""
        kind, chance = self.ground.cast.kind_of(slot), self.settings.chance("slot", slot)
        while not self.killer.done.is_set():
            play = Play(self.ground, Talk(self.ground.socket, self.up), kind, self._ids.next(), chance)
            played = await play.run(self.model[kind.name], self.killer.done.is_set, self.settings.scripts)
            self.counts += played.counts
            self.sessions += 1
            self.turns += len(played.turns)
            self.events += played.events
            self.bytes += played.bytes
            for detail in played.counts.details:
                print("!", detail, flush=True)
            if played.counts.clean:
                self.killer.buried += play.directories
        self._over += 1

    async def _progress(self) -> None:
        while True:
            await trio.sleep(PROGRESS_S)
            print(self.so_far(), flush=True)

    def so_far(self) -> str:
        return (
            f"{time.monotonic() - self._began:5.0f} s  {report.last_line(self.killer.kills, self.counts)}  "
            f"({self.sessions} sessions, {self.turns} turns, {self.events} events compared)"
        )

    def _close(self) -> str:
        if self.settings.keep:
            print(f"kept: {self.ground.root}")
            if self.ground.process is not None:
                self.ground.process.kill()
            self.ground.zygote.close()
            return self.ground.faults()
        try:
            self.ground.close()
        except AssertionError as error:
            return str(error)[-3000:]
        return ""


def main() -> int:
    options = _arguments()
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))
    cli = os.environ.get("CLI") or "demo"
    if cli not in CASTS:
        sys.exit(f"CLI is one of {', '.join(CASTS)}, not {cli!r}")
    files = int(os.environ.get("FILES") or 0)
    settings = Settings(
        kills=int(os.environ.get("KILLS") or 200),
        sessions=int(os.environ.get("SESSIONS") or (6 if files else CASTS[cli].sessions)),
        seed=seed,
        sabotage=os.environ.get("SABOTAGE", ""),
        cli=cli,
        copy=bool(os.environ.get("COPY")),
        files=files,
        keep=options.keep,
    )
    if settings.sabotage not in ("", *SABOTAGES):
        sys.exit(f"SABOTAGE is one of {', '.join(SABOTAGES)}, not {settings.sabotage!r}")
    about = f"seed {seed}; {settings.kills} kills, {settings.sessions} sessions of {cli} {settings.sabotage}"
    print(about.rstrip(), flush=True)
    began = time.monotonic()
    chaos = trio.run(_run, settings)
    return _report(chaos, round(time.monotonic() - began, 1), options.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description="Kill the daemon everywhere, and compare.")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--keep", action="store_true", help="leave the state directory and the daemon's log behind")
    return parser.parse_args()


async def _run(settings: Settings) -> Chaos:
    began = time.monotonic()
    model, counts = await reference(settings)
    assert counts.clean, f"the undisturbed run is not as scripted: {counts.details}"
    print(f"{time.monotonic() - began:5.0f} s  the undisturbed run: {sum(map(len, model.values()))} turns", flush=True)
    chaos = Chaos(settings, model)
    await chaos.run()
    return chaos


def _report(chaos: Chaos, seconds: float, path: Path | None) -> int:
    """Print the table and the verdict; give the exit status."""
    killer, counts = chaos.killer, chaos.counts
    unstruck = killer.plan.unstruck if killer.kills >= ALL_STRUCK_FROM else []
    more = {"sessions": chaos.sessions, "turns": chaos.turns, "events": chaos.events, "bytes": chaos.bytes,
            "seconds": seconds, "faults": chaos.faults, "seed": chaos.settings.seed}  # fmt: skip
    if path:
        path.write_text(json.dumps(report.figures(killer, counts, **more), indent=1) + "\n")
    print(report.table(killer))
    if unstruck:
        print("! never struck:", ", ".join(unstruck))
    if chaos.faults:
        print("! faults of the daemon's own:", chaos.faults)
    if chaos.copies is not None:
        print(f"{chaos.copies.served} daemons served a copy meanwhile")
    print(f"{chaos.sessions} sessions, {chaos.turns} turns, {chaos.events} events, {chaos.bytes / 1e6:.0f} MB compared; "
          f"{killer.cold_lives} lives were whole `clisup serve`s; {seconds} s, seed {chaos.settings.seed}")  # fmt: skip
    print(report.last_line(killer.kills, counts))
    return 0 if counts.clean and not chaos.faults and not unstruck else 1


if __name__ == "__main__":
    sys.exit(main())

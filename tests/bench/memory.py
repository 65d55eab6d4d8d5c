"""What the daemon holds: by itself, for an open session, for a turn that runs; and what a keeper holds, beside a bare `sh`."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.figures import Figure, figure
from tests.bench.place import PATIENCE_S, Place, children_of, end, memory_of, prompt_of
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "memory"
OPEN, RUNNING, SAID = 1_000, 200, 100
SETTLED_S = 0.5
WRAPPERS = 5


def measure(setting: Setting) -> list[Figure]:
    """One daemon, filled step by step. Each of the turns has said a hundred lines, and goes on when the gate opens."""
    count, running = setting.of(OPEN, 0, 20), setting.of(RUNNING, 0, 3)
    with setting.place() as at:
        at.session()  # what the first of a kind loads is the daemon's own
        base = _settled(at.pid)
        sessions = [at.session() for _ in range(count)]
        idle = _settled(at.pid)
        setting.say(f"memory: {base} KiB, with {count} sessions {idle} KiB")
        for session in sessions[:running]:
            at.prompt(session, "hold", setting.mix, SAID)
        at.all_running(running)
        active = _settled(at.pid)
        keepers = [memory_of(pid)["Private_Dirty"] for pid in at.keepers()]
        assert len(keepers) == running, f"{len(keepers)} keepers of {running} turns"
        setting.say(f"memory: with {running} turns {active} KiB, keepers {statistics.median(keepers)} KiB each")
        wrappers = _wrappers(setting, at)
        at.gate.open()
    return [
        figure(PART, "daemon", "MiB", [base / 1024], target=TARGETS["base"]),
        figure(PART, "idle session", "KiB", [(idle - base) / count], target=TARGETS["idle session"]),
        figure(PART, f"running turn that has said {SAID} lines, in the daemon", "KiB", [(active - idle) / running]),
        figure(PART, "keeper, Private_Dirty", "KiB", [statistics.median(keepers)], reference="a bare sh wrapper",
               against=[statistics.median(wrappers)], target=TARGETS["keeper"]),
        figure(PART, f"{count:,} open sessions, {running} turns: the daemon", "MiB", [active / 1024]),
        figure(PART, f"{count:,} open sessions, {running} turns: with the keepers", "MiB", [(active + sum(keepers)) / 1024]),
    ]  # fmt: skip


def _settled(pid: int) -> int:
    """KiB of Rss, once it does not change any more."""
    until, before = time.monotonic() + PATIENCE_S, -1
    while (now := memory_of(pid)["Rss"]) != before and time.monotonic() < until:
        before = now
        time.sleep(SETTLED_S)
    return now


def _wrappers(setting: Setting, at: Place) -> list[int]:
    """KiB of Private_Dirty of shells that do no more than to wait for the same CLI."""
    prompt = prompt_of("flood", at.gate, setting.mix, 1)
    with _shells(at.fake, prompt) as shells:
        for shell in shells:
            until = time.monotonic() + PATIENCE_S
            while not children_of(shell.pid):
                assert time.monotonic() < until, "sh does not start the CLI"
                time.sleep(0.01)
        return [memory_of(shell.pid)["Private_Dirty"] for shell in shells]


@contextmanager
def _shells(fake: Path, prompt: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    shells: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(WRAPPERS):
            argv = ["/bin/sh", "-c", 'trap "kill 0" TERM; "$0"; exit $?', str(fake)]
            shell = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
            shells.append(shell)
            assert shell.stdin is not None
            shell.stdin.write(prompt.encode())
            shell.stdin.flush()  # open until the end: then the fake sees EOF, and ends
        yield shells
    finally:
        end(shells)

"""What the work that one client asks for does to the others: how long a ping of another client waits at most; and how long
a status of many sessions takes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import Figure, figure
from tests.bench.place import Place, bounded, end, prompt_of
from tests.bench.setting import Setting
from tests.bench.stolen import Stolen
from tests.bench.targets import TARGETS

__all__ = ["beside_heavy_requests"]

PINGER = Path(__file__).parent / "pinger.py"
SESSIONS = 1_000
ROUNDS, LINES, QUIET_S = 7, 20, 0.5
MIB = 1024 * 1024
FRAME = 16 * MIB - 4096
"""Nearly as much as the daemon reads in one frame."""


class Wait(NamedTuple):
    """The longest of a ping, in ms, and the share of the processors that the hypervisor took meanwhile."""

    ms: float
    stolen: float


Work = Callable[[Place, Setting, str], None]
"""What a client asks for; it has a session of its own for that. Returns when all that came of it is over."""


def _prompt(size: int) -> Work:
    def ask(at: Place, setting: Setting, session: str) -> None:
        word = prompt_of("flood", at.gate, setting.mix, LINES)
        at.daemon.call("session/prompt", session_id=session, prompt=word.ljust(size), wait=True)

    return ask


def _crowd(at: Place, setting: Setting, session: str) -> None:
    with at.daemon.wire() as wire:
        wire.send(b'{"id":1,"method":"ping","params":{"x":[' + b"[]," * ((FRAME - 64) // 3) + b"0]}}\n")
        assert "error" in wire.frame(), "millions of values were read"


def _status(at: Place, setting: Setting, session: str) -> None:
    at.daemon.call("daemon/status")


def _nothing(at: Place, setting: Setting, session: str) -> None:
    time.sleep(QUIET_S)


WORK: dict[str, Work] = {
    "sends a prompt of 1 MiB": _prompt(MIB),
    "sends a prompt of 16 MiB": _prompt(FRAME - 1024),
    "sends 16 MiB of brackets": _crowd,
    f"asks for the status of {SESSIONS:,} sessions": _status,
}


def beside_heavy_requests(setting: Setting, part: str) -> list[Figure]:
    """One daemon with many open sessions; each round of each work beside one in which nobody else asks for anything."""
    waits: dict[str, list[Wait]] = {name: [] for name in ("", *WORK)}
    statuses = list[Wait]()
    with setting.place() as at:
        session, *_ = [at.session() for _ in range(setting.of(SESSIONS, 0, 20))]
        at.gate.open()
        for number in range(setting.of(ROUNDS, 0, 1)):
            for name, found in waits.items():
                found.append(setting.undisturbed(_longest, at, setting, session, WORK.get(name, _nothing)))
            words = ", ".join(f"{name or 'nobody'} {found[-1].ms:.1f} ms" for name, found in waits.items())
            statuses.append(setting.undisturbed(_status_of_all, at))
            setting.say(
                f"{part}, longest ping {number + 1}/{ROUNDS}, while another one: {words}; status {statuses[-1].ms:.1f} ms"
            )
    without = [wait.ms for wait in waits.pop("")]
    return [
        figure(part, f"daemon/status with {SESSIONS:,} open sessions", "ms", [each.ms for each in statuses],
               target=TARGETS["status of many"], stolen=[each.stolen for each in statuses]),
    ] + [
        figure(part, f"longest wait of a ping while another client {name}", "ms", [wait.ms for wait in found],
               reference="nobody else asks for anything", against=without, stolen=[wait.stolen for wait in found])
        for name, found in waits.items()
    ]  # fmt: skip


def _status_of_all(at: Place) -> Wait:
    with at.daemon.wire() as wire:
        stolen, began = Stolen(), time.monotonic()
        wire.post("daemon/status")
        wire.line()
        return Wait((time.monotonic() - began) * 1000, stolen.share())


def _longest(at: Place, setting: Setting, session: str, work: Work) -> Wait:
    pinger = subprocess.Popen(
        [sys.executable, str(PINGER), at.daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        with bounded([pinger]):
            assert pinger.stdout is not None and pinger.stdout.readline() == b"ready\n", "nobody answers a ping"
            stolen = Stolen()
            work(at, setting, session)
            said, share = pinger.communicate()[0], stolen.share()
    finally:
        end([pinger])
    return Wait(float(said), share)

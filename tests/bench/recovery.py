"""A daemon that is killed while turns run: how long until the next one answers and has adopted all of them; nothing is lost.

Long turns beside short ones show whether that depends on what a turn has said so far.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from clisup.host.process.carrying import clean_environment
from tests.bench.figures import Figure, figure
from tests.bench.place import PATIENCE_S, Place, cpu_of
from tests.bench.setting import Setting
from tests.bench.stolen import Stolen
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "recovery"
REFERENCE = Path(__file__).parent / "reference" / "packages.py"
RUNNING = (50, 1_000)
ROUNDS = {50: 5, 1_000: 2}
LINES = 200
LONG_TURNS, LONG, SHORT = 10, 100_000, 1_000
"""Turns that have said so many lines when the daemon is killed."""
OWN = {"prompt_accepted", "turn_started", "process_started", "process_exited", "turn_completed", "notice", "watchdog"}
"""Types of events that the daemon says itself, of a restart too."""


class Restart(NamedTuple):
    """Seconds from the start until `initialize` is answered, and until all turns run under the new daemon; seconds of its
    processor time by then.
    """

    serving: float
    adopted: float
    stolen: float
    cpu: float = 0.0


def measure(setting: Setting) -> list[Figure]:
    figures = []
    for count in setting.of(RUNNING, (), (2,)):
        full, bare, packages = list[Restart](), list[Restart](), list[Restart]()
        for number in range(setting.of(ROUNDS.get(count, 1), 0, 1)):
            packages.append(setting.undisturbed(_packages))
            bare.append(setting.undisturbed(_empty, setting))
            full.append(found := setting.undisturbed(_killed, setting, count))
            setting.say(f"recovery of {count}, {number + 1}: answers after {found.serving:.2f} s, all adopted after "
                        f"{found.adopted:.2f} s, an empty daemon after {bare[-1].adopted:.2f} s, its packages after "
                        f"{packages[-1].adopted:.2f} s")  # fmt: skip
        adopted, empty, stolen = (
            [each.adopted for each in full],
            [each.adopted for each in bare],
            [each.stolen for each in full],
        )
        reference, more = "the start of an empty daemon", [a - b for a, b in zip(adopted, empty, strict=True)]
        cpu = [each.cpu for each in bare]
        figures += [
            figure(PART, f"{count:,} running turns, until it answers", "s", [each.serving for each in full], reference=reference,
                   against=empty, target=TARGETS.get(f"{count:,} answer"), stolen=stolen),
            figure(PART, f"{count:,} running turns, until all are adopted", "s", adopted, reference=reference, against=empty,
                   target=TARGETS.get(f"{count:,} adopted"), stolen=stolen),
            figure(PART, f"{count:,} running turns, more than an empty daemon", "s", more,
                   target=TARGETS.get(f"more for {count:,}"), stolen=stolen),
            figure(PART, f"an empty daemon, in the rounds of {count:,}", "s", empty, reference="its packages imported, and no more",
                   against=[each.adopted for each in packages], stolen=[each.stolen for each in bare]),
            figure(PART, f"CPU of an empty daemon's start, in the rounds of {count:,}", "s", cpu,
                   target=TARGETS["empty start"] if count == RUNNING[0] else None),
        ]  # fmt: skip
    return [*figures, *_long(setting)]


def _long(setting: Setting) -> list[Figure]:
    turns, long, short = setting.of((LONG_TURNS, LONG, SHORT), (1, SHORT, SHORT), (1, 2 * SHORT, SHORT))
    whole, part = list[Restart](), list[Restart]()
    for number in range(setting.of(3, 0, 1)):
        part.append(setting.undisturbed(_ended, setting, turns, short))
        whole.append(setting.undisturbed(_ended, setting, turns, long))
        setting.say(f"recovery of long turns, {number + 1}: ended after {whole[-1].adopted:.2f} s, "
                    f"short ones after {part[-1].adopted:.2f} s")  # fmt: skip
    if not whole:
        return []
    name = f"{turns} running turns of {long:,} lines, until they have ended"
    return [
        figure(PART, name, "s", [each.adopted for each in whole], reference=f"turns of {short:,} lines",
               against=[each.adopted for each in part], target=TARGETS["long turns"], stolen=[each.stolen for each in whole]),
    ]  # fmt: skip


def _ended(setting: Setting, turns: int, lines: int) -> Restart:
    """Killed and started again when turns have said all they have. They end as soon as the next daemon answers."""
    with setting.place() as at:
        for _ in range(turns):
            at.prompt(at.session(), "hold", setting.mix, lines)
        at.standing(turns)
        at.daemon.kill()
        stolen, began = Stolen(), time.monotonic()
        at.daemon.start()
        serving = time.monotonic() - began
        at.gate.open()
        until = began + PATIENCE_S
        while at.daemon.call("session/list", state="running", limit=1000)["sessions"]:
            assert time.monotonic() < until, "a turn does not end"
            time.sleep(0.005)
        return Restart(serving, time.monotonic() - began, stolen.share(), cpu_of(at.pid))


def _empty(setting: Setting) -> Restart:
    """The same with nothing to adopt: killed and started again."""
    with setting.place() as at:
        at.daemon.kill()
        return _started(at, 0)


def _packages() -> Restart:
    """Nothing but a Python that imports what a daemon imports of others."""
    stolen, began = Stolen(), time.monotonic()
    subprocess.run(
        [sys.executable, "-P", str(REFERENCE)], env=clean_environment(os.environ, 0), check=True, timeout=PATIENCE_S
    )
    seconds = time.monotonic() - began
    return Restart(seconds, seconds, stolen.share())


def _killed(setting: Setting, count: int) -> Restart:
    """Killed and started again while turns run. Then they say all they have."""
    with setting.place() as at:
        sessions = [at.session() for _ in range(count)]
        for session in sessions:
            at.prompt(session, "flood", setting.mix, LINES)
        at.all_running(count)
        at.daemon.kill()
        times = _started(at, count)
        with at.follow(count, 1) as sinks:
            at.gate.open()
            assert sinks.results()[0]["turns"] == count
        _whole(at, sessions, setting)
        return times


def _started(at: Place, count: int) -> Restart:
    stolen, began = Stolen(), time.monotonic()
    at.daemon.start()
    serving = time.monotonic() - began
    until = began + PATIENCE_S
    while (adopted := _adopted(at)) < count:
        assert time.monotonic() < until, f"{adopted} of {count} turns were adopted"
        time.sleep(0.005)
    return Restart(serving, time.monotonic() - began, stolen.share(), cpu_of(at.pid))


def _adopted(at: Place) -> int:
    """How many runs' keepers have said hello to this daemon. Not `daemon/status`, which also asks all CLIs for their versions."""
    rows = at.daemon.call("session/list", state="running", limit=1000)["sessions"]
    return sum(row["keeper_pid"] is not None for row in rows)


def _whole(at: Place, sessions: list[str], setting: Setting) -> None:
    """Each turn has the same events of its CLI as one that nobody disturbed, in the same order."""
    undisturbed = at.session()
    with at.follow(1, 1) as sinks:
        at.prompt(undisturbed, "flood", setting.mix, LINES)
        sinks.results()
    expected = _said(at, undisturbed)
    assert len(expected) > LINES / 2
    for session in sessions:
        found = _said(at, session)
        more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
        assert found == expected, f"{session} in the restart: too many of {dict(more)}, too few of {dict(less)}"


def _said(at: Place, session: str) -> list[str]:
    """The types of the events that the CLI is the source of."""
    page = at.daemon.call("session/events", session_id=session, limit=1000)
    return [event["type"] for event in page["events"] if event["type"] not in OWN]

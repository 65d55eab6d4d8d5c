"""A daemon that is killed while turns run: how long until the next one answers and has adopted all of them; nothing is lost."""

from __future__ import annotations

import time
from collections import Counter

from tests.bench.figures import Figure, figure
from tests.bench.place import PATIENCE_S, Place
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "recovery"
RUNNING = (50, 500)
ROUNDS = {50: 3, 500: 1}
LINES = 200
OWN = {"prompt_accepted", "turn_started", "process_started", "process_exited", "turn_completed", "notice", "watchdog"}
"""Types of events that the daemon says itself, of a restart too."""


def measure(setting: Setting) -> list[Figure]:
    figures = []
    for count in setting.of(RUNNING, (), (2,)):
        serving, adopted, empty = [], [], []
        for number in range(setting.of(ROUNDS.get(count, 1), 0, 1)):
            empty.append(_empty(setting))
            first, all_of_them = _killed(setting, count)
            serving.append(first)
            adopted.append(all_of_them)
            setting.say(f"recovery of {count}, {number + 1}: answers after {first:.2f} s, all adopted after {all_of_them:.2f} s, "
                        f"an empty daemon after {empty[-1]:.2f} s")  # fmt: skip
        reference, target = "the start of an empty daemon", TARGETS.get(f"recovery of {count}")
        figures += [
            figure(PART, f"{count} running turns, until it answers", "s", serving, reference=reference, against=empty),
            figure(PART, f"{count} running turns, until all are adopted", "s", adopted, reference=reference, against=empty,
                   target=target),
            figure(PART, f"{count} running turns, more than an empty daemon", "s",
                   [a - b for a, b in zip(adopted, empty, strict=True)]),
        ]  # fmt: skip
    return figures


def _empty(setting: Setting) -> float:
    """The same with nothing to adopt: killed and started again."""
    with setting.place() as at:
        at.daemon.kill()
        return _started(at, 0)[1]


def _killed(setting: Setting, count: int) -> tuple[float, float]:
    """Seconds until `initialize` is answered, and until all turns run under the new daemon. Then they say all they have."""
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


def _started(at: Place, count: int) -> tuple[float, float]:
    began = time.monotonic()
    at.daemon.start()
    serving = time.monotonic() - began
    until = began + PATIENCE_S
    while (adopted := _adopted(at)) < count:
        assert time.monotonic() < until, f"{adopted} of {count} turns were adopted"
        time.sleep(0.005)
    return serving, time.monotonic() - began


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

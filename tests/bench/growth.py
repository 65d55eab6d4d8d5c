"""Does a line cost more where there is more: events of history, open sessions? Flat is an exponent of 0."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from tests.bench.figures import Figure, figure, fit
from tests.bench.flow import through_daemon
from tests.bench.place import Place, cpu_of
from tests.bench.setting import Setting
from tests.bench.targets import TARGETS

__all__ = ["measure"]

PART = "growth"
HISTORIES, OPEN = (10, 1_000, 10_000, 100_000), (10, 100, 1_000)
SHORT_HISTORIES = (10, 10_000)
ROUNDS = 9
TURNS, STARTS = (10, 50, 200), 10
"""Turns that run while so many more are started."""
RUNNING = 10
"""Of the open sessions, so many have a turn."""
NEW = 20
"""Sessions that are opened to see what opening one costs."""


def measure(setting: Setting) -> list[Figure]:
    figures = _histories(setting)
    return figures if setting.size == "short" else [*figures, *_sessions(setting), *_starts(setting)]


def _histories(setting: Setting) -> list[Figure]:
    """One daemon, a session for each history; the same turn in each, round by round."""
    sizes, lines = setting.of(HISTORIES, SHORT_HISTORIES, (10, 500)), setting.of(40_000, 8_000, 500)
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    with setting.place() as at:
        sessions = {size: at.session() for size in sizes}
        for size, session in sessions.items():
            through_daemon(at, [session], setting.mix, size)
        for number in range(setting.of(ROUNDS, 2, 1)):
            for size, session in sessions.items():
                costs[size].append(through_daemon(at, [session], setting.mix, lines).line_us)
            setting.say(f"growth, history, round {number + 1}: {_words(costs)}")
    figures = _rows("daemon CPU per line after {:,} lines of history", "after", costs)
    return figures if setting.size == "short" else [*figures, _exponent("history", costs)]


def _sessions(setting: Setting) -> list[Figure]:
    """A daemon for each number of open sessions, all at the same time; the same ten turns on each, round by round."""
    sizes, lines = setting.of(OPEN, (), (10, 20)), setting.of(40_000, 0, 500)
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    opening: dict[int, list[float]] = {size: [] for size in sizes}
    with ExitStack() as stack:
        places = {size: stack.enter_context(setting.place()) for size in sizes}
        sessions = {size: [at.session() for _ in range(size)] for size, at in places.items()}
        for number in range(setting.of(ROUNDS, 1, 1)):
            for size, at in places.items():
                running = sessions[size][:: max(len(sessions[size]) // RUNNING, 1)][:RUNNING]
                costs[size].append(through_daemon(at, running, setting.mix, lines).line_us)
                opening[size].append(_opening(at))
            setting.say(f"growth, open sessions, round {number + 1}: {_words(costs)}; session/new {_words(opening)}")
    figures = _rows("daemon CPU per line with {:,} open sessions", "with", costs)
    figures += _rows("session/new with {:,} open sessions", "with", opening)
    return [*figures, _exponent("open sessions", costs), _exponent("open sessions, session/new", opening)]


def _starts(setting: Setting) -> list[Figure]:
    """What it costs the daemon to start a turn while so many run already: up to the most and down again, round by round."""
    sizes = setting.of(TURNS, (), (1, 12))
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    with setting.place() as at:
        for number in range(setting.of(ROUNDS, 1, 1)):
            running: list[str] = []
            for size in sizes:
                running += _started(setting, at, size - len(running), size)
                sessions = [at.session() for _ in range(STARTS)]
                at.standing(size)
                before = cpu_of(at.pid)
                _start(setting, at, sessions)
                at.standing(size + STARTS)
                costs[size].append((cpu_of(at.pid) - before) / STARTS * 1e6)
                _end(at, sessions, left=size)
            _end(at, running, left=0)
            setting.say(f"growth, starts with so many running, round {number + 1}: {_words(costs)}")
    figures = _rows("starting a turn while {:,} run", "while", costs)
    return [*figures, _exponent("running turns, starting one", costs)]


def _started(setting: Setting, at: Place, more: int, whole: int) -> list[str]:
    sessions = [at.session() for _ in range(more)]
    _start(setting, at, sessions)
    at.standing(whole)
    return sessions


def _end(at: Place, sessions: list[str], *, left: int) -> None:
    for session in sessions:
        at.daemon.call("session/close", session_id=session)
    at.standing(left)


def _start(setting: Setting, at: Place, sessions: list[str]) -> None:
    for session in sessions:
        at.prompt(session, "flood", setting.mix, 1)


def _opening(at: Place) -> float:
    """us of processor time for a new session; they are closed and deleted again."""
    before = cpu_of(at.pid)
    opened = [at.session() for _ in range(NEW)]
    cost = (cpu_of(at.pid) - before) / NEW * 1e6
    for session in opened:
        at.daemon.call("session/close", session_id=session)
        at.daemon.call("session/delete", session_id=session)
    return cost


def _rows(name: str, preposition: str, costs: dict[int, list[float]]) -> list[Figure]:
    """A figure for each size, the later ones beside the first."""
    (first, least), *others = costs.items()
    reference = f"{preposition} {first}"
    return [figure(PART, name.format(first), "us", least)] + [
        figure(PART, name.format(size), "us", each, reference=reference, against=least) for size, each in others
    ]


def _exponent(over: str, costs: dict[int, list[float]]) -> Figure:
    """Of the medians; its spread, of each round's."""
    rounds = [fit(list(costs), cost) for cost in zip(*costs.values(), strict=True)]
    whole = fit(list(costs), [statistics.median(each) for each in costs.values()])
    return figure(PART, f"exponent over {over}", "", [whole.exponent], target=TARGETS["exponent"],
                  note=f"residual {whole.residual:.3f}; of single rounds {min(rounds)[0]:.3f} to {max(rounds)[0]:.3f}")  # fmt: skip


def _words(costs: dict[int, list[float]]) -> str:
    return ", ".join(f"{size:,}: {each[-1]:.1f}" for size, each in costs.items()) + " us"

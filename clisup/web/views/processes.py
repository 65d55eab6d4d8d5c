"""Process tree and environment of a session: live processes, what ends of runs killed, and the variables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clisup.cli.export.facts import moment
from clisup.cli.views.events import words
from clisup.cli.views.terminal import clip, plain, size
from clisup.client.raw import JsonObject
from clisup.host.process.listing import SeenProcess
from clisup.policy.secrets.redact import Redactor, secret_arguments

__all__ = [
    "COMMAND_CHARS", "EVENTS", "MOST_ENDS", "MOST_LISTED", "MOST_NAMES", "MOST_PROCESSES", "EndedRun", "KilledGroup",
    "NameGroup", "RunEnvironment", "TreeProcess", "ends_of", "environment_of", "running_of", "tree_of",
]  # fmt: skip

EVENTS = ["process_started", "process_exited", "watchdog", "notice"]
"""Types of events that the page is made of."""

MOST_PROCESSES = 200
"""Processes of a tree on the page at most."""

COMMAND_CHARS = 300
"""Characters of a command line at most."""

MOST_ENDS = 30
"""Ends of processes and actions of the watchdog on the page at most, newest first."""

MOST_LISTED = 50
"""Killed, kept or left processes of one end at most."""

MOST_NAMES = 500
"""Variables of one group at most."""

_ATTESTED = {
    True: "The process got exactly the intended environment.",
    False: "The environment of the process differs from the intended one.",
    None: "It is not known whether the process got the intended environment.",
}
_GROUPS = {"kept": "Kept from the daemon's environment", "set": "Set on purpose", "dropped": "Dropped"}
_REMAINS = {"survivors": "Killed at the end", "kept": "Kept by the orphan policy", "left": "Could not be killed"}
_STATES = {"Z": "zombie", "T": "stopped", "t": "traced", "D": "waits for a disk"}
_DEEPEST = 8


class TreeProcess(NamedTuple):
    """Live process. `depth` is its place below the keeper, from 0."""

    pid: int
    depth: int
    command: str
    rss: str
    state: str
    is_cli: bool


class KilledGroup(NamedTuple):
    """Processes at the end of a run that share a fate. `more` counts the ones that are not shown."""

    title: str
    processes: list[str]
    more: int


class EndedRun(NamedTuple):
    """End of a process, or an action that led to one."""

    at: str
    turn: str
    title: str
    words: str
    groups: list[KilledGroup]


class NameGroup(NamedTuple):
    """Variables that share a fate, each with its rule."""

    title: str
    names: list[tuple[str, str]]
    more: int


class RunEnvironment(NamedTuple):
    """Environment of the last process, and what the backend's lists say now. `names` are those of the process."""

    attested: str
    ok: bool | None
    names: list[str]
    groups: list[NameGroup]
    held_back: list[str]
    checked: list[str]


def running_of(events: Sequence[JsonObject]) -> tuple[JsonObject | None, bool]:
    """Return the last `process_started`, and whether its process has not exited."""
    started, running = None, False
    for event in events:
        if event["type"] == "process_started":
            started, running = event, True
        elif event["type"] == "process_exited":
            running = False
    return started, running


def tree_of(found: Sequence[SeenProcess], started: JsonObject) -> tuple[list[TreeProcess], int] | None:
    """Return the tree, parents first, and how many processes are not shown.

    Return None if the tree is not that of `started`: the daemon runs on another machine, or a pid was used again.
    """
    if not any((one.pid, one.start_time) == (started["pid"], started.get("start_time")) for one in found):
        return None
    children: dict[int, list[SeenProcess]] = {}
    pids = {one.pid for one in found}
    for one in found:
        children.setdefault(one.parent if one.parent in pids else 0, []).append(one)
    shown: list[TreeProcess] = []
    left = [(one, 0) for one in reversed(children.get(0, []))]
    while left and len(shown) < MOST_PROCESSES:
        one, depth = left.pop()
        shown.append(_process(one, depth, started))
        left += [(child, depth + 1) for child in reversed(children.get(one.pid, []))]
    return shown, len(found) - len(shown)


def _process(one: SeenProcess, depth: int, started: JsonObject) -> TreeProcess:
    is_cli = one.pid == started["pid"]
    argv = [str(word) for word in started["argv"]] if is_cli else one.argv  # the journal's has no prompt and no secret
    hide = Redactor(secret_arguments(argv))
    command = clip(hide(" ".join(argv)), COMMAND_CHARS) if argv else f"[{clip(one.name, 40)}]"
    return TreeProcess(one.pid, min(depth, _DEEPEST), command, size(one.rss_bytes), _STATES.get(one.state, ""), is_cli)


def ends_of(events: Iterable[JsonObject]) -> list[EndedRun]:
    """Return the ends of processes, the actions of the watchdog and the daemon's reasons to end, newest first."""
    found = [
        _end(event)
        for event in events
        if event["type"] in ("process_exited", "watchdog") or event.get("code") == "ending"
    ]
    return found[::-1][:MOST_ENDS]


def _end(event: JsonObject) -> EndedRun:
    titles = {"process_exited": "The process ended", "watchdog": "Watchdog"}
    groups = [_group(title, event.get(name) or []) for name, title in _REMAINS.items() if event.get(name)]
    return EndedRun(
        moment(event.get("ts")),
        plain(str(event.get("turn_id") or "")),
        titles.get(event["type"], "The daemon ends it"),
        clip(words(event), COMMAND_CHARS),
        groups,
    )


def _group(title: str, processes: list[JsonObject]) -> KilledGroup:
    shown = [f"{one.get('pid')} {clip(str(one.get('comm') or ''), 40)}" for one in processes[:MOST_LISTED]]
    return KilledGroup(title, shown, len(processes) - len(shown))


def environment_of(started: JsonObject | None, report: JsonObject | None) -> RunEnvironment:
    """Return the environment by `process_started` and by the result of `backend/env`. Either may be missing."""
    attested = None if started is None else started.get("env_attested")
    names = [clip(str(name), 80) for name in (started or {}).get("env_names") or []]
    groups = []
    for key, title in _GROUPS.items():
        rows = (report or {}).get(key) or []
        shown = [(clip(row["name"], 80), clip(row["rule"], 120)) for row in rows[:MOST_NAMES]]
        groups.append(NameGroup(title, shown, len(rows) - len(shown)))
    return RunEnvironment(
        "No process of this session has run." if started is None else _ATTESTED[attested],
        attested,
        names[:MOST_NAMES],
        groups,
        [clip(str(name), 80) for name in (report or {}).get("held_back") or []],
        [
            plain(f"{one['list']}: {one.get('source') or '-'}, {one.get('date') or '-'}")
            for one in (report or {}).get("lists") or []
        ],
    )

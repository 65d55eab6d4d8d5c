"""`clisup status` as text: a page for people, JSON, ids or chosen columns.

`clisup.cli.main` calls this module without click, so the module imports almost nothing.
"""

from __future__ import annotations

import json
import os
import sys

from clisup.cli.status.columns import (
    DEFAULT,
    GO_FIRST,
    UNFINISHED,
    busy,
    chosen,
    inked,
    left_out,
    limited_accounts,
    newest_first,
    sessions_laid_out,
    status_of,
)
from clisup.cli.views.layout import Column, lay_out
from clisup.cli.views.terminal import Ink, clip, cost, count, cut, duration, plain, size, tokens, width_of
from clisup.client.raw import RawClient
from clisup.errors import EXIT_NOT_RUNNING, EXIT_OK, ClisupError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clisup.client.raw import JsonObject

__all__ = ["StatusOptions", "absence", "ask", "chosen_sessions", "is_absent", "page", "render", "show_status"]

SHOWN = 20
"""Sessions on the page: all that work or wait for a person, and the newest of the others up to this number."""

_ABSENT = ("not_running", "unreachable")
_COLOURS = {"ready": "green", "starting": "dim", "draining": "dim"}


class StatusOptions:
    """Form of the output: for people, as JSON, ids alone (`quiet`), or the `columns` of a comma list."""

    __slots__ = ("columns", "json", "quiet")

    def __init__(self, columns: str | None = None, *, json: bool = False, quiet: bool = False) -> None:
        self.columns, self.json, self.quiet = columns, json, quiet


def show_status(options: StatusOptions) -> int:
    """Print the status of the daemon, or of the files if no daemon answers, and return the exit code."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # the C locale has no bullet
    if options.columns is not None:
        chosen(options.columns)  # before the request
    status = ask()
    if is_absent(status) and (options.quiet or options.columns is not None):
        print(f"clisup: {absence(status)}", file=sys.stderr)
    print(render(status, options, Ink(), width_of(sys.stdout)), end="")
    return EXIT_NOT_RUNNING if is_absent(status) else EXIT_OK


def ask() -> JsonObject:
    """Return the daemon's status, or the status of the files if no daemon answers."""
    try:
        with RawClient.connect(name="clisup-status") as client:
            status: JsonObject = client.call("daemon/status")
            return status
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.offline import status_from_disk

        return status_from_disk(error)


def is_absent(status: JsonObject) -> bool:
    """Tell whether the status comes from the files alone."""
    return status["daemon"]["state"] in _ABSENT


def absence(status: JsonObject) -> str:
    """Return one line: that no daemon answers, and which files were read."""
    word = str(status["daemon"]["state"]).replace("_", " ")
    return f"the daemon is {word}; from disk: {plain(status['daemon']['state_dir'])}"


def render(status: JsonObject, options: StatusOptions, ink: Ink, width: int | None) -> str:
    """Return the output with its last line end."""
    if options.json:
        return json.dumps(status, ensure_ascii=False) + "\n"
    if options.quiet:
        return "".join(f"{s['session_id']}\n" for s in status["sessions"])
    if options.columns is not None:
        names = chosen(options.columns)
        lines = inked(sessions_laid_out(status["sessions"], names, width), status["sessions"], ink)
        return cut("\n".join(lines), width) + "\n"
    return cut(page(status, ink, width), width) + "\n"


def page(status: JsonObject, ink: Ink, width: int | None = None) -> str:
    """Return the page for people. The table of sessions has the columns that fit."""
    lines = _absent_lines(status, ink) if is_absent(status) else _daemon_lines(status, ink)
    parts = ["\n".join([lines[0], *map(plain, lines[1:])])]
    absent = [b["name"] for b in status["backends"] if b.get("default") and not b.get("path")]
    if backends := [b for b in status["backends"] if b["name"] not in absent]:
        parts.append(_backend_table(backends, ink, width))
    if absent:
        parts.append(ink("dim", f"Not installed: {', '.join(absent)} (clisup backends lists the places searched)"))
    if limited := limited_accounts(status):
        parts.append(_account_table(limited, ink, width))
    parts.append(_sessions(status["sessions"], ink, width))
    damaged = status.get("damaged_sessions") or {}
    parts += [f"{ink('red', 'damaged')} {plain(f'{id_}: {why}')}" for id_, why in damaged.items()]
    return "\n\n".join(parts)


# -- the head -----------------------------------------------------------------------------------------------------------


def _daemon_lines(status: JsonObject, ink: Ink) -> list[str]:
    d = status["daemon"]
    colour = _COLOURS.get(d["state"], "red")
    storage = d.get("storage") or {}
    clients = len(status.get("clients") or ())
    return [
        f"{ink(colour, '●')} clisup {d['version']} — {ink(colour, d['state'])} (pid {d['pid']}, up {duration(d['uptime_s'])})",
        f"   Socket: {d['socket']}",
        f"    State: {d['state_dir']} ({size(storage.get('free_bytes'))} free{_trouble(storage)})",
        f"  Running: {d['running']} of {d['max_running']} turns, {d['waiting']} waiting, {d['adopted_turns']} adopted",
        f"   Memory: {size(d['rss_bytes'])}, {d['open_fds']} files open, {clients} client{'' if clients == 1 else 's'}",
        *_total_lines(status["totals"]),
        *_drift_lines(status.get("drift") or []),
        *_notify_lines(status.get("notify") or []),
    ]


def _absent_lines(status: JsonObject, ink: Ink) -> list[str]:
    """Return the head without a daemon: the reason, and the turns that run on."""
    from clisup.client.failures import OCCUPIED

    d = status["daemon"]
    missing = d["state"] == "not_running"
    word = "not running" if missing else f"not reachable (pid {d['pid']} holds the state directory)"
    there = os.path.isdir(d["state_dir"])
    disk = f"{size(d['storage']['free_bytes'])} free" if there else "there is no such directory"
    unfinished = sum(s["state"] == UNFINISHED for s in status["sessions"])
    running = "1 turn goes" if d["running"] == 1 else f"{d['running']} turns go"
    return [
        f"{ink('dim', '○')} clisup {d['version']} — {ink('bold', word)}; from disk: {plain(d['state_dir'])}",
        f"   Reason: {d['reason']}; {'start it: clisup start' if missing else OCCUPIED}",
        f"    State: {d['state_dir']} ({disk})",
        f"  Running: {running} on without it, {unfinished} unfinished, {d['waiting']} waiting",
        *_total_lines(status["totals"]),
    ]


def _total_lines(totals: JsonObject) -> list[str]:
    usage = totals.get("tokens") or {}
    outcomes = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in totals["turns"].items())
    fired = totals["watchdog_fired"]
    return [
        f"    Turns: {outcomes}; watchdog fired {fired} {'time' if fired == 1 else 'times'}",
        f"   Tokens: {tokens(usage)} ({count(usage.get('output_tokens'))} of output), cost {cost(totals.get('cost_usd'))}",
    ]


def _drift_lines(entries: list[JsonObject]) -> list[str]:
    """Return one line on output of CLIs that this clisup does not know, or none."""
    words = [f"{e['kind']} {e['version']}: {len(e['frames'])} frames, {len(e['fields'])} fields" for e in entries]
    more = f"; and {len(words) - 3} more versions" if len(words) > 3 else ""
    return [f"    Drift: unknown of {'; '.join(words[-3:])}{more} (clisup doctor)"] if words else []


def _notify_lines(targets: list[JsonObject]) -> list[str]:
    """Return one line on targets of [[notify]] that fail or have lost messages, or none."""
    words = [f"{t['name']} fails: {t['error']}" for t in targets if t["error"]]
    words += [f"{t['given_up']} messages of {t['name']} given up" for t in targets if t["given_up"]]
    return [f"   Notify: {clip('; '.join(words), 200)} (clisup notify list)"] if words else []


def _trouble(storage: JsonObject) -> str:
    """Return the fault of the state directory in capitals, or "" without a fault."""
    state = storage.get("state", "ok")
    if state != "ok":
        word = str(state).replace("_", " ").upper()
        return f", {word} since {storage.get('since')}: {storage.get('error')}"
    return "" if storage.get("writable", True) else ", NOT WRITABLE"


# -- the tables ---------------------------------------------------------------------------------------------------------

_BACKENDS = (
    Column("BACKEND", least=8, most=24), Column("VERSION", least=8, most=24), Column("PATH", least=12, keep_end=True),
    Column("SESSIONS", right=True), Column("STATUS", least=14, most=110),
)  # fmt: skip
_ACCOUNTS = (
    Column("ACCOUNT", least=8, most=32), Column("LIMIT"), Column("TYPE"), Column("USED", right=True), Column("UNTIL"),
    Column("HELD", right=True),
)  # fmt: skip


def _sessions(sessions: list[JsonObject], ink: Ink, width: int | None) -> str:
    if not sessions:
        return "No sessions."
    shown, others = chosen_sessions(sessions)
    layout = sessions_laid_out(shown, DEFAULT, width, GO_FIRST)
    lines = inked(layout, shown, ink)
    if note := left_out(layout):
        lines.append(ink("dim", note))
    if others:
        failed = sum(status_of(s)[1] == "failed" for s in others)
        also = f", {failed} of them failed" if failed else ""
        lines.append(f"{len(others)} older sessions at rest are not shown{also}: clisup sessions lists them all")
    return "\n".join(lines)


def chosen_sessions(sessions: list[JsonObject]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the sessions of the page and the others, both newest first."""
    room = max(0, SHOWN - sum(map(busy, sessions)))
    shown: list[JsonObject] = []
    others: list[JsonObject] = []
    for s in newest_first(sessions):
        (shown if busy(s) or room > 0 else others).append(s)
        room -= not busy(s)
    return shown, others


def _backend_table(backends: list[JsonObject], ink: Ink, width: int | None) -> str:
    rows = [
        [b["name"], b.get("version") or "-", b.get("path") or "-", str(b.get("sessions", "-")), _support(b)]
        for b in backends
    ]
    return _listed(_BACKENDS, rows, ink, width, ("SESSIONS", "PATH", "VERSION"))


def _support(backend: JsonObject) -> str:
    if reason := backend.get("unavailable_reason"):
        return clip(f"not available: {reason}", 110)
    if newest := backend.get("newer_than"):
        return f"newer than {newest}, which clisup was checked with"
    return "supported" if backend["supported"] else f"version not supported ({backend['supported_versions']} is)"


def _account_table(accounts: list[JsonObject], ink: Ink, width: int | None) -> str:
    rows = [
        [
            a["account"],
            a["state"],
            a.get("limit_type") or "-",
            f"{a['utilization']:.0%}" if a.get("utilization") is not None else "-",
            a.get("until") or "-",
            str(len(a["waiting"])),
        ]
        for a in accounts
    ]
    return _listed(_ACCOUNTS, rows, ink, width, ("USED", "TYPE"))


def _listed(
    columns: Sequence[Column], rows: list[list[str]], ink: Ink, width: int | None, go_first: Sequence[str]
) -> str:
    head, *lines = lay_out(columns, rows, width, go_first).lines()
    return "\n".join([ink("bold", head), *lines])

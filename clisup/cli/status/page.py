"""Status as text: a page for people, JSON, ids or chosen columns. Light: see `clisup.cli.main`."""

from __future__ import annotations

import json

from clisup.cli.status.asking import absent_daemon
from clisup.cli.status.columns import chosen, fitting, limited_accounts, session_rows, tinted
from clisup.cli.status.totals import total_lines
from clisup.cli.views.terminal import Ink, clip, cut, duration, plain, size, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clisup.cli.status.arguments import StatusArguments

__all__ = ["daemon_lines", "page", "render", "session_table"]

_COLOURS = {"ready": "green", "starting": "yellow", "draining": "yellow"}


def render(status: dict[str, Any], wanted: StatusArguments, ink: Ink, width: int | None) -> str:
    """The output in the form that is wanted, with its last line end."""
    if wanted.json:
        return json.dumps(status, ensure_ascii=False) + "\n"
    if wanted.quiet:
        return "".join(f"{s['session_id']}\n" for s in status["sessions"])
    if wanted.columns is not None:
        names = chosen(wanted.columns)
        text = table(names, session_rows(status["sessions"], names))
        return cut(tinted(text, status["sessions"], ink), width) + "\n"
    return cut(page(status, ink, width), width) + "\n"


def page(status: dict[str, Any], ink: Ink, width: int | None = None) -> str:
    """All of it for people; the table of sessions has the columns for which there is room."""
    parts = ["\n".join(daemon_lines(status, ink))]
    absent = [b["name"] for b in status["backends"] if b.get("default") and not b.get("path")]
    if backends := [b for b in status["backends"] if b["name"] not in absent]:
        parts.append(_bold_head(_backend_table(backends), ink))
    if absent:
        parts.append(
            ink("dim", f"Not installed: {', '.join(absent)} (clisup backends says where they were looked for)")
        )
    if limited := limited_accounts(status):
        parts.append(_bold_head(_account_table(limited), ink))
    parts.append(_sessions(status["sessions"], ink, width))
    parts += [
        f"{ink('red', 'damaged')} {plain(f'{id_}: {why}')}"
        for id_, why in (status.get("damaged_sessions") or {}).items()
    ]
    return "\n\n".join(parts)


def daemon_lines(status: dict[str, Any], ink: Ink) -> list[str]:
    """The head: who runs, where, how much."""
    d, totals = status["daemon"], status["totals"]
    if absent_daemon(status):
        from clisup.cli.status.absent import absent_lines

        return absent_lines(status, ink)
    colour = _COLOURS.get(d["state"], "red")
    storage = d.get("storage") or {}
    disk = f"{size(storage.get('free_bytes'))} free{_trouble(storage)}"
    lines = [
        f"{ink(colour, '●')} clisup {d['version']} — {ink(colour, d['state'])} (pid {d['pid']}, up {duration(d['uptime_s'])})",
        f"   Socket: {d['socket']}",
        f"    State: {d['state_dir']} ({disk})",
        f"  Running: {d['running']} of {d['max_running']} turns, {d['waiting']} waiting, {d['adopted_turns']} adopted",
        f"   Memory: {size(d['rss_bytes'])}, {d['open_fds']} files open, {_clients(status)}",
        *total_lines(totals),
    ]
    lines += _drift(status.get("drift") or [])
    return [lines[0], *[plain(line) for line in lines[1:]]]


def _clients(status: dict[str, Any]) -> str:
    count = len(status.get("clients") or [])
    return "1 client" if count == 1 else f"{count} clients"


def _drift(entries: list[dict[str, Any]]) -> list[str]:
    """What the CLIs said and this clisup does not know, in one line; none where there is nothing."""
    words = [f"{e['kind']} {e['version']}: {len(e['frames'])} frames, {len(e['fields'])} fields" for e in entries]
    more = f"; and {len(words) - 3} more versions" if len(words) > 3 else ""
    return [f"    Drift: unknown of {'; '.join(words[-3:])}{more} (clisup doctor)"] if words else []


def _trouble(storage: dict[str, Any]) -> str:
    """What is wrong with the state directory, loudly; nothing where nothing is."""
    state = storage.get("state", "ok")
    if state != "ok":
        word = str(state).replace("_", " ").upper()
        return f", {word} since {storage.get('since')}: {storage.get('error')}"
    return "" if storage.get("writable", True) else ", NOT WRITABLE"


def session_table(sessions: list[dict[str, Any]]) -> str:
    """One row a session, every cell filled."""
    return fitting(sessions, None)[0]


def _sessions(sessions: list[dict[str, Any]], ink: Ink, width: int | None) -> str:
    if not sessions:
        return "No sessions."
    text, gone = fitting(sessions, width)
    note = f"(no room for {', '.join(gone)}; choose with -o)"
    return tinted(text, sessions, ink) + (f"\n{ink('dim', note)}" if gone else "")


def _backend_table(backends: list[dict[str, Any]]) -> str:
    rows = [
        [b["name"], b.get("version") or "-", b.get("path") or "-", str(b.get("sessions", "-")), _word(b)]
        for b in backends
    ]
    return table(["BACKEND", "VERSION", "PATH", "SESSIONS", "STATUS"], rows)


def _account_table(accounts: list[dict[str, Any]]) -> str:
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
    return table(["ACCOUNT", "LIMIT", "TYPE", "USED", "UNTIL", "HELD"], rows)


def _word(backend: dict[str, Any]) -> str:
    if reason := backend.get("unavailable_reason"):
        return clip(f"not available: {reason}", 110)
    return "supported" if backend["supported"] else f"version not supported ({backend['supported_versions']} is)"


def _bold_head(text: str, ink: Ink) -> str:
    head, _, rest = text.partition("\n")
    return f"{ink('bold', head)}\n{rest}" if rest else head

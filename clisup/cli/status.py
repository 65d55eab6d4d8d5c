"""`clisup status`: what the daemon, its backends and its sessions are doing, in one screen. Light: see `clisup.cli.main`."""

from __future__ import annotations

import sys

from clisup.cli.terminal import Ink, clip, cost, count, duration, plain, size, table, tokens
from clisup.client.sync import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["daemon_lines", "session_table", "short_ids", "show_status"]

_HEAD = ["SESSION", "BACKEND", "STATE", "PHASE", "TURN", "IDLE", "AGE", "PID", "TOKENS", "COST", "QUEUE", "NEXT-TIMER"]
_COLOURS = {"ready": "green", "starting": "yellow", "draining": "yellow"}


def show_status(session: str | None, as_json: bool, why: bool = False) -> int:
    """Print the status of the daemon, or of one session, or why that one's turn is still alive."""
    with Client.connect(name="clisup-status") as client:
        if session is not None and why:
            from clisup.cli.session_why import show_why

            return show_why(client, session, as_json)
        if session is not None:
            from clisup.cli.session_status import show_session

            return show_session(client, session, as_json)
        status = client.call("daemon/status")
    if as_json:
        import json

        print(json.dumps(status, ensure_ascii=False))
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a C locale has no bullet
    print(_page(status, Ink()))
    return 0


def _page(status: dict[str, Any], ink: Ink) -> str:
    parts = ["\n".join(daemon_lines(status, ink))]
    absent = [b["name"] for b in status["backends"] if b.get("default") and not b.get("path")]
    if backends := [b for b in status["backends"] if b["name"] not in absent]:
        parts.append(_bold_head(_backend_table(backends), ink))
    if absent:
        parts.append(
            ink("dim", f"Not installed: {', '.join(absent)} (clisup backends says where they were looked for)")
        )
    if limited := [a for a in status.get("accounts") or () if a["state"] in ("limited", "warned") or a["waiting"]]:
        parts.append(_bold_head(_account_table(limited), ink))
    if sessions := status["sessions"]:
        parts.append(_bold_head(session_table(sessions), ink))
    else:
        parts.append("No sessions.")
    parts += [
        f"{ink('red', 'damaged')} {plain(f'{id_}: {why}')}"
        for id_, why in (status.get("damaged_sessions") or {}).items()
    ]
    return "\n\n".join(parts)


def daemon_lines(status: dict[str, Any], ink: Ink) -> list[str]:
    """The head: who runs, where, how much."""
    d, totals = status["daemon"], status["totals"]
    colour = _COLOURS.get(d["state"], "red")
    storage, turns, usage = d.get("storage") or {}, totals["turns"], totals.get("tokens") or {}
    disk = f"{size(storage.get('free_bytes'))} free{_trouble(storage)}"
    outcomes = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in turns.items())
    lines = [
        f"{ink(colour, '●')} clisup {d['version']} — {ink(colour, d['state'])} (pid {d['pid']}, up {duration(d['uptime_s'])})",
        f"   Socket: {d['socket']}",
        f"    State: {d['state_dir']} ({disk})",
        f"  Running: {d['running']} of {d['max_running']} turns, {d['waiting']} waiting, {d['adopted_turns']} adopted",
        f"   Memory: {size(d['rss_bytes'])}, {d['open_fds']} files open, {len(status.get('clients') or [])} clients",
        f"    Turns: {outcomes}; watchdog fired {totals['watchdog_fired']} times",
        f"   Tokens: {tokens(usage)} ({count(usage.get('output_tokens'))} of output), cost {cost(totals.get('cost_usd'))}",
    ]
    lines += _drift(status.get("drift") or [])
    return [lines[0], *[plain(line) for line in lines[1:]]]


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
    short = short_ids([s["session_id"] for s in sessions])
    return table(_HEAD, [_session_row(s, short[s["session_id"]]) for s in sessions])


def _session_row(s: dict[str, Any], short: str) -> list[str]:
    return [
        short,
        s["backend"],
        s["state"],
        _phase(s),
        s.get("turn_id") or "-",
        duration(s.get("idle_s")),
        duration(s.get("age_s")),
        str(s.get("pid") or "-"),
        tokens(s.get("tokens")),
        cost(s.get("cost_usd")),
        str(len(s.get("queue") or [])),
        _timer(s.get("next_timer")),
    ]


def _phase(s: dict[str, Any]) -> str:
    """`approval (2)`: so many tool calls wait for a word; see clisup approvals."""
    phase = s.get("phase") or "-"
    return f"{phase} ({s['approvals']})" if s.get("approvals") else phase


def _timer(timer: dict[str, Any] | None) -> str:
    return f"{timer['phase']} in {duration(max(timer['fires_in_s'], 0))}" if timer else "-"


def short_ids(ids: list[str]) -> dict[str, str]:
    """The shortest beginning, of at least 8 characters, that still tells each id from the others."""
    width = 8
    while len({id_[:width] for id_ in ids}) < len(set(ids)):
        width += 4
    return {id_: id_[:width] for id_ in ids}


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

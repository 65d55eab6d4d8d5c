"""`clisup status` with options: the click command, the page of one session, `--why` and `--watch`."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import SHORTEST, find_session, pick
from clisup.cli.on import SESSION, fleet_option
from clisup.cli.options import complete_session, json_option
from clisup.cli.status.columns import COLUMNS, age_of, chosen, outcome, status_of
from clisup.cli.status.page import StatusOptions, absence, ask, is_absent, render, show_status
from clisup.cli.views.events import event_line
from clisup.cli.views.terminal import Ink, cost, cut, duration, plain, size, tokens, width_of
from clisup.client.raw import JsonObject, RawClient
from clisup.client.sync import Client
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["budget_words", "show_why", "span", "status", "watch_status"]

WATCH_S, SHORTEST_S, LONGEST_S = 2.0, 0.1, 86_400.0
"""Seconds between two statuses of `--watch`: the default and the bounds."""

_HOME, _TO_LINE_END, _TO_SCREEN_END = "\033[H", "\033[K", "\033[J"
_MEANINGS = {
    "startup": "the CLI has printed nothing yet",
    "opening": "the CLI opens its session, or starts MCP servers",
    "model": "waiting for the model",
    "tool": "a tool runs",
    "hook": "a hook of the CLI's settings runs",
    "compaction": "the CLI compacts its context",
    "login": "the CLI renews its login",
    "approval": "waiting for the answer to an approval",
    "background": "the answer is complete, and background work goes on",
    "tail": "the answer has ended, and its last words are read",
    "linger": "the last frame has arrived, and the CLI should exit",
    "blocked": "the disk accepts no writes, so the timers are frozen",
}
_TARGETS = {"INT": "to the CLI", "TERM": "to the whole tree", "KILL": "for the rest"}
_CLOSED_BY = {"client": " by a client", "idle": " by the daemon, after a long time without a prompt"}
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_BUDGET_UNITS = {"usd": "USD", "tokens": "tokens", "turns": "turns", "wall_s": "s in turns"}


@click.command("status")
@click.argument("session", required=False, type=SESSION, shell_complete=complete_session)
@click.option("-o", "--output", "columns", metavar="FIELDS", help="Only the table, with these columns: a comma list.")
@click.option("-q", "--quiet", is_flag=True, help="Only the whole ids of the sessions, one a line, for scripts.")
@json_option("Print JSON; docs/schemas/status.json is its schema.")
@click.option("-w", "--watch", is_flag=False, flag_value=f"{WATCH_S:g}", metavar="[SECONDS]",
              help="Repeat every SECONDS (default 2), until Ctrl-C.")  # fmt: skip
@fleet_option("Show the daemons and sessions of all boxes.")
@click.option("--why", is_flag=True, help="Say why SESSION's turn is still alive, and when and how it would be ended.")
def status(
    session: str | None, columns: str | None, quiet: bool, as_json: bool, watch: str | None, everywhere: bool, why: bool
) -> int:
    """Show the daemon, its backends and its sessions.

    With SESSION, show its details. With --why, show its watchdog: the phase of the turn, each timer and its deadline,
    the last sign of life, the work of its processes, and the next step.

    If no daemon is running, the status comes from its files, and the exit code is 3. Nothing is changed.

    FIELDS: {columns}.

    \b
    Example:
      clisup status
      clisup status 3f2a
      clisup status --why 3f2a
      clisup status -o session,state,mem,last
      clisup status --watch 5
      clisup status --json | jq .daemon.running
      clisup status --fleet
    """
    session, pause = _pause(session, watch)
    if why and session is None:
        raise usage("--why needs a session", hint="give the beginning of its id: clisup status --why 3f2a")
    if as_json + quiet + (columns is not None) > 1 or (why and (quiet or columns is not None or pause is not None)):
        raise usage(
            "cannot give two forms at once", hint="choose one of -o, -q, --json and --why (--json --why is one)"
        )
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # the C locale has no bullet
    options = StatusOptions(columns, json=as_json, quiet=quiet)
    if columns is not None:
        chosen(columns)  # before the request
    if everywhere:
        if session is not None or why or pause is not None:
            raise usage("cannot show all boxes with SESSION, --why or --watch", hint="give BOX/SESSION, or --on BOX")
        from clisup.cli.fleet.views import show_fleet_status

        return show_fleet_status(options)
    if pause is not None:
        return watch_status(options, session, pause)
    if session is None:
        return show_status(options)
    return show_why(session, as_json) if why else _show_session(session, options)


status.help = str(status.help).replace("{columns}", ", ".join(COLUMNS))


def _pause(session: str | None, watch: str | None) -> tuple[str | None, float | None]:
    """Return the session and the seconds of `--watch`.

    SECONDS may be left out, so in `--watch 3f2a` the word is a session: seconds are shorter than an id.
    """
    if watch is None:
        return session, None
    if session is None and len(watch) >= SHORTEST and "." not in watch:
        return watch, WATCH_S
    try:
        seconds = float(watch)
    except ValueError:
        raise click.BadParameter(f"{watch!r} is no number of seconds", click.get_current_context()) from None
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise usage(
            f"cannot repeat every {seconds:g} s: give {SHORTEST_S:g} to {LONGEST_S:g} s",
            hint="try: clisup status --watch 2",
        )
    return session, seconds


def _show_session(prefix: str, options: StatusOptions) -> int:
    """Print the details of a session; without a daemon those of its files, with exit code 3."""
    try:
        with Client.connect(name="clisup-status") as client:
            detail, code = client.call("session/get", session_id=find_session(client, prefix)), EXIT_OK
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.offline import session_from_disk

        detail, code = session_from_disk(prefix), error.exit_code
    if options.json:
        print(json.dumps({"schema_version": 1, **detail}, ensure_ascii=False))
    elif options.quiet or options.columns is not None:
        print(render({"sessions": [detail]}, options, Ink(), width_of(sys.stdout)), end="")
    else:
        print(cut(_session_page(detail, Ink(), from_disk=code != EXIT_OK), width_of(sys.stdout)))
    return code


def _session_page(s: JsonObject, ink: Ink, *, from_disk: bool) -> str:
    head = f"{ink('bold', plain(s['session_id']))} — {s['state']}" + (f" ({s['phase']})" if s.get("phase") else "")
    head += _CLOSED_BY.get(s.get("closed_by") or "", "")
    head += f"; {asked}" if (asked := status_of(s)[0]).startswith("wants you") else ""
    if from_disk:
        keeper = f"its keeper (pid {s['keeper_pid']}) goes on" if s["keeper_pid"] else "no process of it runs"
        head += f"; the daemon is not running: from disk; {keeper}"
    estimated = " (estimated)" if s.get("cost_source") == "estimated" else ""
    running = f", the running turn ~{cost(s['turn_cost_usd'])}" if s.get("turn_cost_usd") is not None else ""
    rows = {
        "Backend": f"{s['backend']}, model {s.get('model') or '-'}, native id {s.get('native_session_id') or '-'}",
        **({"Title": s["title"]} if s.get("title") else {}),
        "Directory": s["cwd"] + (f" (branch {s['branch']})" if s.get("branch") else ""),
        "Labels": " ".join(f"{k}={v}" for k, v in s["labels"].items()) or "-",
        "Turn": f"{s.get('turn_id') or '-'} (pid {s.get('pid') or '-'}), {s['turns']} in all, {len(s['queue'])} queued",
        "Outcome": _outcome(s),
        "Memory": size(s.get("rss_bytes")),
        "Idle": f"{duration(s.get('idle_s'))}, open for {duration(s.get('age_s'))}",
        "Tokens": f"{tokens(s.get('tokens'))}, cost {cost(s.get('cost_usd'))}{estimated}{running}",
        **({"Budget": words} if (words := budget_words(s.get("budget"))) else {}),
        "Timers": ", ".join(_timer(t) for t in s.get("timers", [])) or "-",
        "Events": f"{s['first_seq']} to {s['next_seq'] - 1}, {s['subscribers']} following",
    }
    lines = [head, *[f"{name:>10}: {plain(text)}" for name, text in rows.items()]]
    events = [event_line(event) for event in s.get("last_events", [])]
    return "\n".join([*lines, *(["", *events] if events else [])])


def _outcome(s: JsonObject) -> str:
    ended = age_of((s.get("last_turn") or {}).get("ended_at"))
    return f"{outcome(s)}, {duration(ended)} ago" if ended is not None and outcome(s) != "-" else outcome(s)


def _timer(timer: JsonObject) -> str:
    return f"{timer['phase']} fires in {duration(max(timer['fires_in_s'], 0))} of {duration(timer['limit_s'])}"


# -- --watch ------------------------------------------------------------------------------------------------------------


def watch_status(options: StatusOptions, session: str | None, pause: float) -> int:
    """Print the status every `pause` seconds until Ctrl-C. Return 0.

    A terminal is redrawn. A pipe gets a block with the time for each status, or with `--json` one line. While the daemon
    is away, the status of its files is shown.
    """
    tty = sys.stdout.isatty() and not options.json
    if tty:
        sys.stdout.write(_HOME + _TO_SCREEN_END)
    try:
        while True:
            text = _block(options, session, pause)
            sys.stdout.write(_screen(text) if tty else text)
            sys.stdout.flush()
            time.sleep(pause)
    except KeyboardInterrupt:
        if tty:
            print()
        return 0


def _block(options: StatusOptions, session: str | None, pause: float) -> str:
    """Return a line with the time, except for JSON, then the status or the error."""
    head = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  every {pause:g} s"
    try:
        status = _status_of(session)
    except ClisupError as error:
        if error.kind not in ("overloaded", "shutting_down", "session_not_found"):
            raise
        return "" if options.json else f"{head}\n\n{error}\n\n"
    text = render(status, options, Ink(), width_of(sys.stdout))
    if options.json:
        return text
    return f"{head}{f'; {absence(status)}' if is_absent(status) else ''}\n\n{text}\n"


def _status_of(session: str | None) -> JsonObject:
    """Return the status; with `session`, the status of that session alone."""
    status = ask()
    if session is not None:
        named = pick(session, lambda: status["sessions"])
        status["sessions"] = [s for s in status["sessions"] if s["session_id"] == named]
    return status


def _screen(text: str) -> str:
    """Return the text drawn over the screen before: each line clears its rest. Lines beyond the screen are left out."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        lines, columns = max(size.lines - 1, 1), size.columns or None
    except (OSError, ValueError):
        lines, columns = 24, None
    shown = text.rstrip("\n").split("\n")
    if len(shown) > lines:
        shown = [*shown[: lines - 1], f"... {len(shown) - lines + 1} more lines; choose with -o, or use a pipe"]
    body = "".join(f"{line}{_TO_LINE_END}\n" for line in cut("\n".join(shown), columns).split("\n"))
    return _HOME + body + _TO_SCREEN_END


# -- --why --------------------------------------------------------------------------------------------------------------


def show_why(prefix: str, as_json: bool) -> int:
    """Print the `watch` of `session/get`, for people or as JSON (`null` if no turn runs)."""
    with RawClient.connect(name="clisup-status") as client:
        detail = client.call("session/get", session_id=find_session(client, prefix))
    watch = detail.get("watch")
    if as_json:
        print(json.dumps(watch, ensure_ascii=False))
        return 0
    budget = {"Budget": words} if (words := budget_words(detail.get("budget"))) else {}
    rows = {**_why_rows(watch, time.time()), **budget} if watch else {**budget, "Next": _idle(detail)}
    head = f"{Ink()('bold', plain(detail['session_id']))} — {detail['state']}"
    if turn := detail.get("turn_id"):
        head += f", turn {turn} (pid {detail.get('pid') or '-'})"
    print("\n".join([head, *(f"{name:>10}: {plain(text)}" for name, text in rows.items())]))
    return 0


def _why_rows(watch: JsonObject, now: float) -> dict[str, str]:
    phase = watch["phase"]
    timers = [_timer_words(timer, now) for timer in watch["timers"]] or ["none is armed"]
    return {
        "Phase": f"{phase}: {_MEANINGS[phase]}" if phase in _MEANINGS else phase,
        "Last life": f"{span(watch['idle_s'])} ago, at {_clock(now - watch['idle_s'], now)}",
        "Timers": f"\n{'':>12}".join(timers),
        "Evidence": _evidence(watch.get("evidence"), watch.get("windows_left", 0), bool(watch.get("probed"))),
        "Ladder": _ladder(watch["ladder"]),
        "Next": watch["next"],
    }


def _timer_words(timer: JsonObject, now: float) -> str:
    left = timer["fires_in_s"]
    when = f"at {_clock(now + left, now)}, in {span(left)}" if left > 0 else "now"
    warns = timer.get("warns_in_s")
    warning = f", warns in {span(warns)}" if warns is not None and warns > 0 else ""
    return f"{timer['phase']}, limit {span(timer['limit_s'])}: fires {when}{warning}"


def _evidence(seen: JsonObject | None, windows: int, probed: bool) -> str:
    more = f"; if it works, it gets {windows} more window{'s' if windows != 1 else ''}" if probed else ""
    if seen is None:
        return f"the process tree has not been checked{more}"
    work = "work since the check before" if seen.get("grew") else "no work seen"
    used = f"{seen['processes']} processes, {span(seen['cpu_s'])} of CPU, {size(seen['io_bytes'])} read and written"
    return f"{used}: {work} ({span(seen['age_s'])} ago){more}"


def _ladder(steps: list[list[Any]]) -> str:
    """Return the steps as `SIGINT to the CLI, 3 s later SIGTERM to the whole tree, 5 s later SIGKILL for the rest`."""
    said, wait = [], ""
    for name, grace in steps:
        said.append(f"{wait}SIG{name} {_TARGETS.get(name, '')}".rstrip())
        wait = f"{span(grace)} later " if grace else "then "
    return ", ".join(said)


def _idle(detail: JsonObject) -> str:
    if used_up := _used_up_words(detail.get("budget")):
        return used_up
    if held := detail.get("held"):
        until = f"until {held['until']}" if held.get("until") else "until another turn has tried it"
        return f"the next turn is held {until}: the account {held['account']} is limited; place {held['position']} in the queue"
    if waiting := len(detail.get("queue") or ()):
        return (
            f"no turn runs; {waiting} queued prompt{'s start' if waiting != 1 else ' starts'} as soon as a slot is free"
        )
    return "nothing, because no turn runs"


def _clock(at: float, now: float) -> str:
    """Return the local time, with the day if it is not today."""
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def span(seconds: float) -> str:
    """Return the two largest units, as `8.2 s`, `1 min 20 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + " s"
    left = round(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        if left >= length or parts:
            number, left = divmod(left, length)
            parts.append(f"{number} {unit}" if number else "")
    return " ".join(part for part in parts[:2] if part)


# -- budgets ------------------------------------------------------------------------------------------------------------


def budget_words(budget: JsonObject | None) -> str | None:
    """Return `1200 of 5000 tokens, 0.31 of 2 USD`, with a note on what is used up or unknown; None without a budget."""
    if not budget:
        return None
    used = budget["used"]
    words = ", ".join(
        f"{_number(used.get(name))} of {_number(limit)} {_BUDGET_UNITS.get(name, name)}"
        for name, limit in budget["limit"].items()
    )
    if "usd" in budget["limit"] and (unknown := used.get("unpriced")):
        words += f" (and {unknown} turn{'s' if unknown != 1 else ''} of unknown cost)"
    return f"{words}; used up" if budget.get("exhausted") else words


def _used_up_words(budget: JsonObject | None) -> str | None:
    """Return why no turn may start, or None if a turn may."""
    if not budget or not (name := budget.get("exhausted")):
        return None
    limit, used = budget["limit"][name], budget["used"][name]
    unit = _BUDGET_UNITS.get(name, name)
    return (
        f"no turn may start: the budget of {_number(limit)} {unit} is used up ({_number(used)}); clisup set raises it"
    )


def _number(value: float | None) -> str:
    """Return counts whole, and sums of money and time with four digits."""
    if value is None:
        return "?"
    return str(value) if isinstance(value, int) else f"{value:.0f}" if value >= 1000 else f"{value:.4g}"

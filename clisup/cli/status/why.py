"""`clisup status --why SESSION`: the reason why a turn is still alive, and when and how the watchdog would end it."""

from __future__ import annotations

import json
import time
from typing import Any

from clisup.cli.lookup import find_session
from clisup.cli.views.terminal import Ink, plain, size
from clisup.client.raw import JsonObject, RawClient

__all__ = ["budget_words", "show_why", "span"]

_MEANINGS = {
    "startup": "the CLI has printed nothing yet",
    "model": "waiting for the model",
    "tool": "a tool runs",
    "approval": "waiting for the answer to an approval",
    "background": "the answer is complete, and background work goes on",
    "linger": "the last frame has arrived, and the CLI should exit",
    "blocked": "the disk accepts no writes, so the timers are frozen",
}
_PROBED = ("tool", "background")  # phases in which the watchdog checks the processes before it ends a silent turn
_TARGETS = {"INT": "to the CLI", "TERM": "to the whole tree", "KILL": "for the rest"}
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_BUDGET_UNITS = {"usd": "USD", "tokens": "tokens", "turns": "turns", "wall_s": "s in turns"}


def show_why(prefix: str, as_json: bool) -> int:
    """Print the `watch` of `session/get`, for people or as JSON (`null` if no turn runs)."""
    with RawClient.connect(name="clisup-status") as client:
        detail = client.call("session/get", session_id=find_session(client, prefix))
    watch = detail.get("watch")
    if as_json:
        print(json.dumps(watch, ensure_ascii=False))
        return 0
    budget = {"Budget": words} if (words := budget_words(detail.get("budget"))) else {}
    rows = {**_rows(watch, time.time()), **budget} if watch else {**budget, "Next": _idle(detail)}
    head = f"{Ink()('bold', plain(detail['session_id']))} — {detail['state']}"
    if turn := detail.get("turn_id"):
        head += f", turn {turn} (pid {detail.get('pid') or '-'})"
    print("\n".join([head, *(f"{name:>10}: {plain(text)}" for name, text in rows.items())]))
    return 0


def _rows(watch: JsonObject, now: float) -> dict[str, str]:
    phase = watch["phase"]
    timers = [_timer(timer, now) for timer in watch["timers"]] or ["none is armed"]
    return {
        "Phase": f"{phase}: {_MEANINGS[phase]}" if phase in _MEANINGS else phase,
        "Last life": f"{span(watch['idle_s'])} ago, at {_clock(now - watch['idle_s'], now)}",
        "Timers": f"\n{'':>12}".join(timers),
        "Evidence": _evidence(watch.get("evidence"), watch.get("windows_left", 0), phase in _PROBED),
        "Ladder": _ladder(watch["ladder"]),
        "Next": watch["next"],
    }


def _timer(timer: JsonObject, now: float) -> str:
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

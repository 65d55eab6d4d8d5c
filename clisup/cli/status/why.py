"""`clisup status --why SESSION`: why a turn is still alive, and when and how it would be ended. Light: see `clisup.cli.main`."""

from __future__ import annotations

import sys
import time

from clisup.cli.lookup import find_session
from clisup.cli.status.budget_words import budget_words, used_up_words
from clisup.cli.views.terminal import Ink, plain, size
from clisup.client.raw import RawClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["show_why", "span"]

_MEANS = {
    "startup": "the CLI has said nothing yet",
    "model": "the model is to answer",
    "tool": "a tool runs",
    "approval": "somebody is to answer an approval",
    "background": "the answer is there, and background work goes on",
    "linger": "the last frame came, and the CLI is to leave",
    "blocked": "the disk takes no more, so the timers are frozen",
}
_LOOKED_AT = ("tool", "background")  # where the processes are looked at before a silent turn is ended
_TO = {"INT": "to the CLI", "TERM": "to the whole tree", "KILL": "for what is left"}
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def show_why(client: RawClient, prefix: str, as_json: bool) -> int:
    """Print the `watch` of `session/get`, for people or as it is (`null` where nothing runs)."""
    detail = client.call("session/get", session_id=find_session(client, prefix))
    watch = detail.get("watch")
    if as_json:
        import json

        print(json.dumps(watch, ensure_ascii=False))
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    budget = {"Budget": words} if (words := budget_words(detail.get("budget"))) else {}
    rows = {**_rows(watch, time.time()), **budget} if watch else {**budget, "Next": _idle(detail)}
    head = f"{Ink()('bold', plain(detail['session_id']))} — {detail['state']}"
    if turn := detail.get("turn_id"):
        head += f", turn {turn} (pid {detail.get('pid') or '-'})"
    print("\n".join([head, *(f"{name:>10}: {plain(text)}" for name, text in rows.items())]))
    return 0


def _rows(watch: dict[str, Any], now: float) -> dict[str, str]:
    phase = watch["phase"]
    timers = [_timer(timer, now) for timer in watch["timers"]] or ["none is armed"]
    return {
        "Phase": f"{phase}: {_MEANS[phase]}" if phase in _MEANS else phase,
        "Last life": f"{span(watch['idle_s'])} ago, at {_clock(now - watch['idle_s'], now)}",
        "Timers": f"\n{'':>12}".join(timers),
        "Evidence": _evidence(watch.get("evidence"), watch.get("windows_left", 0), phase in _LOOKED_AT),
        "Ladder": _ladder(watch["ladder"]),
        "Next": watch["next"],
    }


def _timer(timer: dict[str, Any], now: float) -> str:
    left = timer["fires_in_s"]
    when = f"at {_clock(now + left, now)}, in {span(left)}" if left > 0 else "now"
    warns = timer.get("warns_in_s")
    warning = f", warns in {span(warns)}" if warns is not None and warns > 0 else ""
    return f"{timer['phase']}, limit {span(timer['limit_s'])}: fires {when}{warning}"


def _evidence(seen: dict[str, Any] | None, windows: int, looked_at: bool) -> str:
    more = f"; if it works, it is given {windows} more window{'s' if windows != 1 else ''}" if looked_at else ""
    if seen is None:
        return f"the process tree has not been looked at{more}"
    work = "it had worked since the look before" if seen.get("grew") else "no work seen"
    used = f"{seen['processes']} processes, {span(seen['cpu_s'])} of CPU, {size(seen['io_bytes'])} read and written"
    return f"{used}: {work} ({span(seen['age_s'])} ago){more}"


def _ladder(steps: list[list[Any]]) -> str:
    """`SIGINT to the CLI, 3 s later SIGTERM to the whole tree, 5 s later SIGKILL for what is left`."""
    said, wait = [], ""
    for name, grace in steps:
        said.append(f"{wait}SIG{name} {_TO.get(name, '')}".rstrip())
        wait = f"{span(grace)} later " if grace else "then "
    return ", ".join(said)


def _idle(detail: dict[str, Any]) -> str:
    if used_up := used_up_words(detail.get("budget")):
        return used_up
    if held := detail.get("held"):
        until = f"until {held['until']}" if held.get("until") else "until another turn has tried it"
        return f"the next turn is held {until}: the account {held['account']} is limited; place {held['position']} in the line"
    if waiting := len(detail.get("queue") or ()):
        return f"nothing runs; {waiting} waiting prompt{'s' if waiting != 1 else ''} will be run as soon as there is a slot"
    return "nothing, because no turn runs"


def _clock(at: float, now: float) -> str:
    """Local time, with the day where it is not today's."""
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def span(seconds: float) -> str:
    """As `8.2 s`, `1 min 20 s`, `2 h 5 min`: the two largest units, so that a deadline can be waited for."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + " s"
    left = round(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        if left >= length or parts:
            number, left = divmod(left, length)
            parts.append(f"{number} {unit}" if number else "")
    return " ".join(part for part in parts[:2] if part)

"""`clisup status SESSION`: one session from near."""

from __future__ import annotations

import json
import sys
from typing import Any

from clisup.cli.lookup import find_session
from clisup.cli.status.arguments import StatusArguments
from clisup.cli.status.budget_words import budget_words
from clisup.cli.status.columns import outcome
from clisup.cli.status.page import render
from clisup.cli.views.event_lines import event_line
from clisup.cli.views.terminal import Ink, cost, cut, duration, plain, size, tokens, width_of
from clisup.client.raw import RawClient
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["show_session"]


def show_session(wanted: StatusArguments) -> int:
    """Print `session/get`, for people or as it is; without a daemon what the files say, and exit code 3."""
    try:
        with RawClient.connect(name="clisup-status") as client:
            detail, code = client.call("session/get", session_id=find_session(client, str(wanted.session))), EXIT_OK
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.status.stored import session_from_disk

        detail, code = session_from_disk(str(wanted.session)), error.exit_code
    if wanted.json:
        print(json.dumps({"schema_version": 1, **detail}, ensure_ascii=False))
    elif wanted.quiet or wanted.columns is not None:
        print(render({"sessions": [detail]}, wanted, Ink(), width_of(sys.stdout)), end="")
    else:
        print(cut(_page(detail, Ink(), from_disk=code != EXIT_OK), width_of(sys.stdout)))
    return code


def _page(s: dict[str, Any], ink: Ink, *, from_disk: bool) -> str:
    head = f"{ink('bold', plain(s['session_id']))} — {s['state']}" + (f" ({s['phase']})" if s.get("phase") else "")
    if from_disk:
        keeper = f"its keeper (pid {s['keeper_pid']}) goes on" if s["keeper_pid"] else "no process of it"
        head += f"; the daemon is not running: from disk; {keeper}"
    rows = {
        "Backend": f"{s['backend']}, model {s.get('model') or '-'}, native id {s.get('native_session_id') or '-'}",
        "Directory": s["cwd"],
        "Labels": " ".join(f"{k}={v}" for k, v in s["labels"].items()) or "-",
        "Turn": f"{s.get('turn_id') or '-'} (pid {s.get('pid') or '-'}), {s['turns']} in all, {len(s['queue'])} queued",
        "Outcome": outcome(s),
        "Memory": size(s.get("rss_bytes")),
        "Idle": f"{duration(s.get('idle_s'))}, open for {duration(s.get('age_s'))}",
        "Tokens": f"{tokens(s.get('tokens'))}, cost {cost(s.get('cost_usd'))}{_surely(s)}",
        **({"Budget": words} if (words := budget_words(s.get("budget"))) else {}),
        "Timers": ", ".join(_timer(t) for t in s.get("timers", [])) or "-",
        "Events": f"{s['first_seq']} to {s['next_seq'] - 1}, {s['subscribers']} following",
    }
    lines = [head, *[f"{name:>10}: {plain(text)}" for name, text in rows.items()]]
    events = [event_line(event) for event in s.get("last_events", [])]
    return "\n".join([*lines, *(["", *events] if events else [])])


def _surely(s: dict[str, Any]) -> str:
    return " (estimated)" if s.get("cost_source") == "estimated" else ""


def _timer(timer: dict[str, Any]) -> str:
    return f"{timer['phase']} fires in {duration(max(timer['fires_in_s'], 0))} of {duration(timer['limit_s'])}"

"""`clisup status SESSION`: one session from near."""

from __future__ import annotations

import json
import sys
from typing import Any

from clisup.cli.describe import event_line
from clisup.cli.lookup import find_session
from clisup.cli.terminal import Ink, cost, duration, plain, tokens
from clisup.client.sync import Client

__all__ = ["show_session"]


def show_session(client: Client, prefix: str, as_json: bool) -> int:
    """Print `session/get`, for people or as it is."""
    detail = client.call("session/get", session_id=find_session(client, prefix))
    if as_json:
        print(json.dumps({"schema_version": 1, **detail}, ensure_ascii=False))
        return 0
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    print(_page(detail, Ink()))
    return 0


def _page(s: dict[str, Any], ink: Ink) -> str:
    head = f"{ink('bold', plain(s['session_id']))} — {s['state']}" + (f" ({s['phase']})" if s.get("phase") else "")
    rows = {
        "Backend": f"{s['backend']}, model {s.get('model') or '-'}, native id {s.get('native_session_id') or '-'}",
        "Directory": s["cwd"],
        "Labels": " ".join(f"{k}={v}" for k, v in s["labels"].items()) or "-",
        "Turn": f"{s.get('turn_id') or '-'} (pid {s.get('pid') or '-'}), {s['turns']} in all, {len(s['queue'])} queued",
        "Idle": f"{duration(s.get('idle_s'))}, open for {duration(s.get('age_s'))}",
        "Tokens": f"{tokens(s.get('tokens'))}, cost {cost(s.get('cost_usd'))}",
        "Timers": ", ".join(_timer(t) for t in s.get("timers", [])) or "-",
        "Events": f"{s['first_seq']} to {s['next_seq'] - 1}, {s['subscribers']} following",
    }
    lines = [head, *[f"{name:>10}: {plain(text)}" for name, text in rows.items()]]
    events = [event_line(event) for event in s.get("last_events", [])]
    return "\n".join([*lines, *(["", *events] if events else [])])


def _timer(timer: dict[str, Any]) -> str:
    return f"{timer['phase']} fires in {duration(max(timer['fires_in_s'], 0))} of {duration(timer['limit_s'])}"

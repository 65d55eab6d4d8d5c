"""Candidates for the shell's completion: sessions and backends of the daemon.

A key press waits for them: the daemon gets `LIMIT_S` at most, and failures give no candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from clisup.cli.views.terminal import clip, duration
from clisup.client.sync import Client

__all__ = ["LIMIT_S", "MOST", "complete_backend", "complete_session"]

LIMIT_S = 1.0
"""Seconds for the requests to the daemon."""

MOST = 200
"""Limit of offered sessions; the newest come first."""

_WITH_CLOSED = ("logs", "delete", "fork", "record", "status")


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sessions whose short id begins with `incomplete`."""
    return candidates(lambda: _sessions(ctx.info_name in _WITH_CLOSED), incomplete)


def complete_backend(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the backends whose name begins with `incomplete`."""
    return candidates(_backends, incomplete)


def candidates(ask: Callable[[], list[CompletionItem]], incomplete: str) -> list[CompletionItem]:
    """Return the items of `ask` that begin with `incomplete`; none if the daemon is away or slow."""
    found: list[CompletionItem] = []

    def run() -> None:
        try:
            found.extend(ask())
        except Exception:  # a shell would print the error into the command line
            pass

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    return [item for item in [*found] if item.value.startswith(incomplete)]


def _sessions(with_closed: bool) -> list[CompletionItem]:
    from clisup.cli.status.columns import short_ids

    with Client.connect(name="clisup-completion") as client:
        rows = list(client.call("session/list", limit=MOST)["sessions"])
        if with_closed:
            rows += client.call("session/list", limit=MOST, state="closed")["sessions"]
    short = short_ids([s["session_id"] for s in rows])
    return [CompletionItem(short[s["session_id"]], help=_about(s)) for s in rows]


def _about(s: dict[str, Any]) -> str:
    labels = " ".join(f"{name}={value}" for name, value in s["labels"].items())
    return clip(f"{s['backend']}, {s['state']}, {duration(s.get('age_s'))} old {labels}".rstrip(), 60)


def _backends() -> list[CompletionItem]:
    with Client.connect(name="clisup-completion") as client:
        return [CompletionItem(name) for name in client.server.get("backends") or ()]

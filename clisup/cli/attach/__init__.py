"""`clisup attach`: follow and prompt a session from any terminal at any time."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from clisup.cli.failure import usage
from clisup.cli.lookup import find_session
from clisup.cli.options import session_argument
from clisup.client.sync import Client

__all__ = ["attach", "last_start"]

_FIRST_SPAN = 512
_PAGE = 1000


@click.command("attach")
@session_argument
@click.option("--since", default="turn", metavar="WHEN",
              help="turn (default: the last turn's start), all, now, or a SEQ of logs --json.")  # fmt: skip
@click.option(
    "--steer", is_flag=True, help="Send typed lines into the running turn of a live session; else they are queued."
)
def attach(session: str, since: str, steer: bool) -> int:
    """Follow SESSION on this terminal, and prompt it.

    The command shows the output since the last turn began, then new output. A typed line is a prompt; while a turn runs, the
    prompt is queued. Approvals are asked here, too. Several terminals may be attached to one session.

    Ctrl-C interrupts the running turn, a second one leaves; Ctrl-D leaves. The session goes on.

    \b
    Example:
      clisup attach 3f2a
      clisup attach 3f2a --since all
      clisup attach 3f2a --steer
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage(
            "cannot attach, because stdin or stdout is not a terminal",
            hint="for pipes: clisup logs -f SESSION, clisup run --session SESSION PROMPT",
        )
    if since not in ("turn", "all", "now") and not since.isdecimal():
        raise usage(f"cannot begin at {since!r}, because WHEN is turn, all, now or a seq", hint="--since all")
    with Client.connect(name="clisup-attach") as client:
        about = client.call("session/get", session_id=find_session(client, session))
        after = _after(client, about, since)
        path = client.path
    if about["state"] == "closed":
        raise usage(f"cannot attach to session {session}, because it is closed", hint=f"read it: clisup logs {session}")
    sys.stdout.flush()
    _greet(about)
    from clisup.cli.attach.session import AttachedSession

    return AttachedSession(path, about, after, steer=steer).run()


def _greet(about: dict[str, Any]) -> None:
    from clisup.cli.views.terminal import Ink, plain

    text = f"[{about['session_id']} {about['backend']} in {about['cwd']}; Ctrl-C interrupts, Ctrl-D leaves]"
    os.write(1, (Ink()("dim", plain(text)) + "\n").encode("utf-8", "replace"))


def _after(client: Client, about: dict[str, Any], since: str) -> int:
    """Return the seq after which the events begin."""
    now = int(about["next_seq"]) - 1
    if since == "now":
        return now
    if since == "all":
        return 0
    return last_start(client, about) if since == "turn" else min(max(0, int(since) - 1), now)


def last_start(client: Client, about: dict[str, Any]) -> int:
    """Return the seq before the last `turn_started`, searched backwards from the end; 0 without one."""
    end, span = int(about["next_seq"]) - 1, _FIRST_SPAN
    while True:
        begin = max(0, end - span)
        found = _last_of(client, about["session_id"], "turn_started", begin)
        if found or begin == 0:
            return max(0, found - 1)
        span *= 8


def _last_of(client: Client, session_id: str, type_: str, after: int) -> int:
    found = 0
    while True:
        page = client.call("session/events", session_id=session_id, after_seq=after, limit=_PAGE, types=[type_])
        found = max([found, *(int(event["seq"]) for event in page["events"])])
        if page["eof"] or page["next_seq"] - 1 <= after:
            return found
        after = page["next_seq"] - 1

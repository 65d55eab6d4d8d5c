"""Connection to the daemon for commands that may start it: `connect` is `Client.connect` plus a start on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from clisup.cli.views.terminal import plain
from clisup.client.failures import Unreachable
from clisup.client.sync import Client

__all__ = ["connect", "ensure_daemon", "no_start_option", "report"]

_Command = TypeVar("_Command", bound=Callable[..., object])


def no_start_option(command: _Command) -> _Command:
    """Add `--no-start`."""
    return click.option(
        "--no-start", is_flag=True, help="Do not start the daemon if none runs; see also daemon.autostart."
    )(command)


def connect(name: str, *, no_start: bool = False) -> Client:
    """Connect to the daemon as the client `name`, and start the daemon first if none answers.

    The daemon is not started with `no_start`, with `daemon.autostart = false`, while CLISUP_SOCKET names a socket, and
    inside a session. Raises `ClisupError` as `Client.connect` and `clisup.starting.start_daemon` do.
    """
    try:
        return Client.connect(name=name)
    except Unreachable:
        if no_start or os.environ.get("CLISUP_SOCKET"):  # with a named socket, the configuration does not matter
            raise
        from clisup.daemon.start import Flags
        from clisup.starting import autostart_refusal, log_file_of, plan_start, start_daemon

        plan = plan_start(Flags(), os.environ)
        if autostart_refusal(plan, os.environ):
            raise
        report(f"no daemon runs, so this command starts it; its log: {log_file_of(plan)}")
        start_daemon(plan, os.environ, report)
    return Client.connect(name=name)


def ensure_daemon(name: str, *, no_start: bool = False) -> None:
    """Start the daemon as `connect` does, for a command with another client. Raises as `connect` does."""
    connect(name, no_start=no_start).close()


def report(text: str) -> None:
    """Print a line about the start on stderr."""
    print(plain(f"clisup: {text}"), file=sys.stderr, flush=True)

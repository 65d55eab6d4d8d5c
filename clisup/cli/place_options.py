"""Options of commands that read the state directory themselves: where the daemon's configuration and its sessions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

__all__ = ["of_the_daemon"]

_Command = TypeVar("_Command", bound=Callable[..., object])


def of_the_daemon(command: _Command) -> _Command:
    """`--config` and `--state-dir`."""
    config = click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        help="The daemon's configuration, where it was started with --config.",
    )
    state_dir = click.option(
        "--state-dir",
        metavar="DIRECTORY",
        type=click.Path(),
        help="Where sessions are kept, where no daemon runs that can tell.",
    )
    return config(state_dir(command))

"""Options of several commands: the configuration that a daemon would have, and where one that runs has its own and its sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

__all__ = ["configuration_file", "of_the_daemon"]

_Command = TypeVar("_Command", bound=Callable[..., object])


configuration_file = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(),
    help="The configuration file (default: ~/.config/clisup/config.toml).",
)


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

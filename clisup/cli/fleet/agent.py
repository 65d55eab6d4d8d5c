"""`clisup fleet agent`: the process that stands beside the daemon in a fleet."""

from __future__ import annotations

import os
from typing import Literal, cast

import click

from clisup.cli.fleet.extra import check_extra
from clisup.errors import EXIT_OK

__all__ = ["agent"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "console")


@click.command("agent")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Least level to log.")
@click.option("--log-format", type=click.Choice(FORMATS), default="auto", show_default=True,
              help="Form of the lines on stderr; auto: the systemd journal, a terminal, or JSON.")  # fmt: skip
def agent(log_level: str, log_format: str) -> int:
    """Run this box's agent of the fleet in the foreground.

    The agent copies the daemon's sessions to the fleet, answers other boxes, takes jobs, and opens a socket here for each
    other box. SIGHUP reads the table [fleet] of the configuration again. A unit for it: clisup fleet install.

    \b
    Example:
      clisup fleet join dev1.member
      clisup fleet agent
    """
    check_extra()
    from clisup.fleet.agent.app import run_agent

    run_agent(dict(os.environ), log_level, cast("Literal['auto', 'json', 'console']", log_format))
    return EXIT_OK

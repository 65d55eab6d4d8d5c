"""`clisup serve`: the daemon itself."""

from __future__ import annotations

import click

from clisup.cli.commands.daemon.serve_arguments import LOG_FORMATS
from clisup.cli.place_options import configuration_file

__all__ = ["command"]


@click.command("serve")
@configuration_file
@click.option("--socket", type=click.Path(), help="Where clients connect.")
@click.option("--state-dir", metavar="DIRECTORY", type=click.Path(), help="Where sessions and their events are kept.")
@click.option(
    "--check", is_flag=True, help="Only find out whether it would start: configuration, scrub lists, settings."
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default="auto", show_default=True,
              help="How the daemon logs; auto: to the journal under systemd, as text on a terminal, else as JSON.")  # fmt: skip
def command(config: str | None, socket: str | None, state_dir: str | None, check: bool, log_format: str) -> int:
    """Run the daemon in the foreground.

    It serves until it is told to stop; SIGTERM ends it as `clisup stop` does. Flags go before CLISUP_* variables, those
    before the configuration file.

    \b
    Example:
      clisup serve
      clisup serve --config ./clisup.toml --log-format json
      clisup serve --config ./clisup.toml --check
    """
    from clisup.daemon.start import Flags, serve

    return serve(Flags(config, socket, state_dir, log_format, check))  # type: ignore[arg-type]  # click checks the choice

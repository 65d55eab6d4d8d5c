"""Commands that have commands: their list shows whole sentences, not what fits on a line of 80, and a mistake is its command's."""

from __future__ import annotations

import click

__all__ = ["SHORT_HELP", "CommandGroup"]

SHORT_HELP = 90
"""Characters of a command's first sentence in a list of commands."""


class CommandGroup(click.Group):
    """A group whose help lists the first sentences of its commands whole."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. click does not say whose option lacks its value; the hint is to name that command's help."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            if error.ctx is None and name and (wrong := self.get_command(ctx, name)) is not None:
                error.ctx = click.Context(wrong, info_name=name, parent=ctx)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            self.write_commands(ctx, formatter, self.list_commands(ctx))

    def write_commands(self, ctx: click.Context, formatter: click.HelpFormatter, names: list[str]) -> None:
        """Each name with its command's first sentence."""
        found = [(name, self.get_command(ctx, name)) for name in names]
        formatter.write_dl([(name, command.get_short_help_str(SHORT_HELP)) for name, command in found if command])

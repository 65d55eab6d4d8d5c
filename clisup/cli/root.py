"""The click side of `clisup`: commands by group, each loaded from its own file when it is needed."""

from __future__ import annotations

import difflib
import importlib
import os
import sys

import click

from clisup.cli.command_group import CommandGroup
from clisup.cli.failure import usage

__all__ = ["ELSEWHERE", "GROUPS", "root", "run_click"]

GROUPS: dict[str, tuple[str, ...]] = {
    "Work": (
        "run",
        "attach",
        "logs",
        "approvals",
        "wait",
        "interrupt",
        "steer",
        "sessions",
        "set",
        "context",
        "fork",
        "close",
        "delete",
    ),
    "Daemon": (
        "serve",
        "status",
        "top",
        "metrics",
        "stop",
        "gc",
        "daemon",
        "install",
        "uninstall",
        "config",
    ),
    "Backends": (
        "backends",
        "env",
        "doctor",
        "debug",
    ),
    "Recordings": (
        "record",
        "replay",
    ),
    "Model layer": ("workflow",),
    "Other": (
        "demo",
        "completion",
        "man",
        "mcp-bridge",
        "version",
    ),
}
ELSEWHERE = {
    "start": "serve", "up": "serve", "down": "stop", "restart": "daemon restart", "reload": "daemon reload",
    "ps": "status", "list": "sessions", "ls": "sessions", "tail": "logs", "events": "logs", "ask": "run", "prompt": "run",
    "kill": "interrupt", "cancel": "interrupt", "rm": "delete", "remove": "delete", "follow": "attach",
}  # fmt: skip
"""What other programs call it, where no letters are alike."""
_FOLDERS = {"Work": "commands.sessions", "Daemon": "commands.daemon"}  # all other groups: commands.other
_PLACES = {
    "status": ("status.help_only", "status"),  # its own files are light, and know nothing of click
    "version": ("status.help_only", "version"),
    "top": ("top", "command"),
}
"""Modules and names of commands that do not stand in the folder of their group."""


class Commands(CommandGroup):
    """A group that imports a command's file only when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        group = next(group for group, names in GROUPS.items() if cmd_name in names)
        own = f"{_FOLDERS.get(group, 'commands.other')}.{cmd_name.replace('-', '_')}"
        path, name = _PLACES.get(cmd_name, (own, "command"))
        found = getattr(importlib.import_module(f"clisup.cli.{path}"), name)
        assert isinstance(found, click.Command)
        if "_CLISUP_COMPLETE" in os.environ:
            from clisup.cli.commands.other.completion import teach

            teach(found)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            word = ELSEWHERE.get(args[0]) or next(iter(difflib.get_close_matches(args[0], known, n=1, cutoff=0.5)), "")
            hint = f"did you mean: clisup {word}" if word else "see clisup --help"
            raise usage(f"cannot run {args[0]!r}, because there is no such command", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                self.write_commands(ctx, formatter, list(names))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def root() -> None:
    """Run CLI model backends (claude, codex and their kin) under a supervisor daemon.

    The daemon keeps every session's events, ends turns that hang, and outlives its clients.

    \b
    Example:
      clisup serve &
      clisup run -b claude "Say hello."
      clisup status
    """


def run_click(args: list[str]) -> int:
    """Run a command; its exit code. Raises click's exceptions and `ClisupError`."""
    if not args or args[0] == "help":
        args = [*args[1:], "--help"]
    try:
        # Not `root.main`, which makes an exit code of 1 of a reader that has left.
        with root.make_context("clisup", list(args)) as context:
            code = root.invoke(context)
    except (EOFError, KeyboardInterrupt):
        click.echo(file=sys.stderr)
        raise click.Abort from None
    return code if isinstance(code, int) else 0

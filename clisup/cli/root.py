"""Tree of commands: their groups in `clisup --help`, and the file that holds each of them."""

from __future__ import annotations

import importlib
import sys

import click

from clisup import __version__
from clisup.cli.failure import usage
from clisup.cli.on import on_option, with_on
from clisup.cli.options import CommandGroup

__all__ = ["GROUPS", "SYNONYMS", "root", "run_click"]

# fmt: off
_PLACES: dict[str, dict[str, str]] = {
    "Work": {
        "run": "commands.run:run", "batch": "batch.command:batch", "job": "job.command:job", "resume": "commands.resume:resume",
        "attach": "attach:attach", "logs": "commands.logs:logs",
        "export": "export.command:export",
        "approvals": "commands.approvals:approvals", "wait": "commands.wait:wait", "interrupt": "commands.sessions:interrupt",
        "steer": "commands.sessions:steer", "sessions": "commands.sessions:sessions", "set": "commands.sessions:set_",
        "context": "commands.sessions:context", "fork": "commands.sessions:fork",
        "handover": "commands.handover:handover", "diff": "commands.worktrees:diff",
        "land": "commands.worktrees:land", "discard": "commands.worktrees:discard", "close": "commands.sessions:close",
        "delete": "commands.sessions:delete",
    },
    "Daemon": {
        "setup": "setup.command:setup", "start": "commands.start:start", "stop": "commands.daemon:stop",
        "status": "status.command:status", "top": "top:top", "metrics": "commands.daemon:metrics",
        "gc": "commands.sessions:gc", "socket": "commands.start:socket", "serve": "commands.daemon:serve",
        "daemon": "commands.daemon:daemon", "install": "commands.install:install",
        "uninstall": "commands.install:uninstall", "config": "commands.config:config",
        "notify": "commands.notify:notify", "web": "clisup.web.command:web", "fleet": "fleet.command:fleet",
    },
    "Backends": {
        "backends": "commands.backends:backends", "env": "commands.backends:env", "doctor": "commands.backends:doctor",
        "debug": "commands.backends:debug",
    },
    "Doors": {"acp": "doors.acp:acp", "mcp": "doors.mcp:mcp", "gateway": "doors.gateway:gateway"},
    "Recordings": {"record": "commands.recordings:record", "replay": "commands.recordings:replay"},
    "Model layer": {"workflow": "commands.workflow:workflow"},
    "Other": {
        "demo": "commands.demo:demo", "completion": "commands.other:completion", "man": "commands.manual:man",
        "mcp-bridge": "commands.other:mcp_bridge", "version": "commands.other:version",
    },
}
"""Commands by group: the module in `clisup.cli`, or of a room above it, and the name in it."""

SYNONYMS = {
    "up": "start", "down": "stop", "restart": "daemon restart", "reload": "daemon reload",
    "ps": "status", "list": "sessions", "ls": "sessions", "tail": "logs", "events": "logs", "ask": "run", "prompt": "run",
    "webhook": "notify", "kill": "interrupt", "cancel": "interrupt", "rm": "delete", "remove": "delete", "follow": "attach",
    "box": "fleet", "boxes": "fleet", "remote": "fleet",
}
"""Names that other programs use for a command and that look unlike its name here."""
# fmt: on

GROUPS: dict[str, tuple[str, ...]] = {title: tuple(places) for title, places in _PLACES.items()}
_FILES = {name: place for places in _PLACES.values() for name, place in places.items()}


class Commands(CommandGroup):
    """Group that imports the file of a command only when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_FILES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _FILES:
            return None
        module, _, name = _FILES[cmd_name].partition(":")
        place = module if module.startswith("clisup.") else f"clisup.cli.{module}"
        found = getattr(importlib.import_module(place), name)
        assert isinstance(found, click.Command)
        return with_on(found, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _FILES and not args[0].startswith("-"):
            import difflib  # the daemon starts through this module, and needs none

            word = SYNONYMS.get(args[0]) or next(iter(difflib.get_close_matches(args[0], _FILES, n=1, cutoff=0.5)), "")
            hint = f"did you mean: clisup {word}" if word else "see clisup --help"
            raise usage(f"cannot run {args[0]!r}, because there is no such command", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                self.write_commands(ctx, formatter, list(names))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="clisup %(version)s", help="Print the version of this command.")
def root() -> None:
    """Run CLI model backends (claude, codex and others) under a supervisor daemon.

    The daemon keeps the events of every session, ends turns that hang, and outlives its clients.

    \b
    Example:
      clisup start
      clisup run -b claude "Say hello."
      clisup status
    """


root.params.append(on_option())


def run_click(args: list[str]) -> int:
    """Run a command and return its exit code. Raises the exceptions of click and `ClisupError`."""
    if not args or args[0] == "help":
        args = [*args[1:], "--help"]
    try:
        # `root.main` would exit with 1 when the reader of a pipe has left.
        with root.make_context("clisup", list(args)) as context:
            code = root.invoke(context)
    except (EOFError, KeyboardInterrupt):
        click.echo(file=sys.stderr)
        raise click.Abort from None
    return code if isinstance(code, int) else 0

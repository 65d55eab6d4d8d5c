"""`clisup mcp`: a server of the Model Context Protocol on stdio, and its entry in the configuration of CLIs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click

from clisup.cli.daemon_start import ensure_daemon, no_start_option, report
from clisup.cli.failure import usage
from clisup.cli.options import CommandGroup, root_directory
from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_OK, ConfigurationError, WorldError

__all__ = ["mcp"]

_CLIS = ("claude", "codex", "gemini", "qwen")


@click.group("mcp", cls=CommandGroup, invoke_without_command=True)
@click.option("--root", metavar="DIRECTORY", help="Agents work in this directory or below.  [default: the current one]")
@click.option("--permission-mode", "modes", multiple=True, metavar="[BACKEND=]MODE",
              help="Permission mode of the agents, for one backend or for all.")  # fmt: skip
@click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="The most that one agent may cost.")
@click.option("--depth", type=click.IntRange(1, 5), default=1, show_default=True,
              help="Generations of agents. With 2, agents may start agents.")  # fmt: skip
@click.option(
    "--agents", type=click.IntRange(1, 1000), default=16, show_default=True, help="Agents that are open at once."
)
@click.option("--may-approve", is_flag=True, help="Let the client answer the approvals of its agents.")
@click.option(
    "--log-file", metavar="FILE", help="Log tools and errors here. The log has no texts of prompts and answers."
)
@no_start_option
@click.pass_context
def mcp(
    ctx: click.Context, root: str | None, modes: tuple[str, ...], budget_usd: float | None, depth: int, agents: int,
    may_approve: bool, log_file: str | None, no_start: bool,
) -> int:  # fmt: skip
    """Serve an MCP client on stdin and stdout, whose agent starts others.

    claude, codex and other CLIs start this command; "clisup mcp install" writes the entry. The agents belong to the
    daemon: they go on when the client ends. docs/how-to/mcp.md has the tools and their bounds.

    \b
    Example:
      clisup mcp install claude --write
      clisup mcp --budget-usd 2 --permission-mode claude=acceptEdits install codex
    """
    permission_modes = _modes(modes)
    if ctx.invoked_subcommand is not None:
        return EXIT_OK
    if sys.stdin.isatty():
        report("this command is for MCP clients, which speak JSON-RPC on stdin; Ctrl-D ends it")
    try:
        from clisup.doors.mcp.bounds import AgentBounds
        from clisup.doors.mcp.main import serve_agent
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigurationError(
            "this command needs the package mcp, which is not installed",
            hint="pip install 'clisup[mcp]' into the environment of clisup",
        ) from None
    directory = root_directory(root or ".", "--root")
    bounds = AgentBounds(directory, permission_modes, budget_usd, depth, agents, may_approve)
    return serve_agent(bounds, lambda: ensure_daemon("clisup-mcp", no_start=no_start), log_file)


@mcp.command("install")
@click.argument("cli", type=click.Choice(_CLIS))
@click.option("--write", is_flag=True, help="Run that CLI's own command, which adds the entry for this user.")
@click.pass_context
def install(ctx: click.Context, cli: str, write: bool) -> int:
    """Print the command that adds this server to a CLI's configuration; with --write, run it.

    Options of "clisup mcp" before the word "install" become part of the entry.

    \b
    Example:
      clisup mcp install claude
      clisup mcp --depth 2 install codex --write
    """
    command = add_command(cli, _server_argv(ctx))
    if not write:
        print(plain(_shell(command)))
        return EXIT_OK
    path = shutil.which(cli)
    if path is None:
        raise WorldError(f"{cli} is not installed, or not on PATH", kind="backend_unavailable", hint=_shell(command))
    ended = subprocess.run([path, *command[1:]], stdin=subprocess.DEVNULL, check=False, timeout=_CLI_S)
    if ended.returncode:
        raise WorldError(
            f"{cli} mcp add failed with exit code {ended.returncode}", kind="backend_unavailable", hint=_shell(command)
        )
    return EXIT_OK


_CLI_S = 120


def add_command(cli: str, server: list[str]) -> list[str]:
    """Return the command of a CLI that adds an MCP server for the user, under the name `clisup`.

    Tried with claude 2.1.330, codex 0.169.0, gemini 0.61.0 and qwen 0.24.4.
    """
    if cli == "codex":
        return ["codex", "mcp", "add", "clisup", "--", *server]
    if cli == "claude":
        return ["claude", "mcp", "add", "--scope", "user", "clisup", "--", *server]
    return [cli, "mcp", "add", "--scope", "user", "clisup", *server[:1], "--", *server[1:]]


def _server_argv(ctx: click.Context) -> list[str]:
    """Return the command line of this server, with the options that were given."""
    assert ctx.parent is not None
    given = ctx.parent.params
    argv = [os.path.abspath(shutil.which("clisup") or sys.argv[0]), "mcp"]
    for mode in given["modes"]:
        argv += ["--permission-mode", mode]
    if given["root"]:
        argv += ["--root", os.path.abspath(given["root"])]
    for name, default in (("budget_usd", None), ("depth", 1), ("agents", 16), ("log_file", None)):
        if given[name] != default:
            argv += [f"--{name.replace('_', '-')}", str(given[name])]
    return [*argv, *(["--may-approve"] if given["may_approve"] else []), *(["--no-start"] if given["no_start"] else [])]


def _modes(given: tuple[str, ...]) -> dict[str, str]:
    """Return the permission modes by backend; "" stands for all others."""
    found: dict[str, str] = {}
    for text in given:
        backend, equals, mode = text.rpartition("=")
        if not mode or (equals and not backend) or backend in found:
            raise usage(f"cannot understand --permission-mode {text!r}", hint="--permission-mode claude=acceptEdits")
        found[backend] = mode
    return found


def _shell(command: list[str]) -> str:
    import shlex

    return shlex.join(command)

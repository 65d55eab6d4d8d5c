"""`clisup version`, `clisup mcp-bridge`, and `clisup completion` with the answers to shells, by click's protocol."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from clisup import __version__

__all__ = ["SHELLS", "VARIABLE", "complete", "completion", "mcp_bridge", "version"]

VARIABLE = "_CLISUP_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command("version")
def version() -> int:
    """Print the version of this command.

    \b
    Example:
      clisup version
    """
    print(f"clisup {__version__}")
    return 0


@click.command("mcp-bridge")
def mcp_bridge() -> int:
    """Serve a session's tools to its CLI, as an MCP server on stdio. CLIs start it, users do not.

    For a session that was opened with `tools`, the daemon adds this server to the CLI's MCP configuration (as a file, which
    starts faster than this command). CLISUP_BRIDGE_SOCKET and CLISUP_BRIDGE_TOKEN name the session; the token allows
    only calls of the session's tools. To see the view of a CLI:

    \b
    Example:
      export CLISUP_BRIDGE_SOCKET=... CLISUP_BRIDGE_TOKEN=...      # from private/bridge.json of the session
      clisup mcp-bridge < messages.jsonl                           # one of them: {"id":1,"method":"tools/list"}
    """
    from clisup.bridge.bridge import main

    return main()


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script of SHELL: commands, options, sessions and backends.

    \b
    Example:
      eval "$(clisup completion bash)"                               in ~/.bashrc
      eval "$(clisup completion zsh)"                                in ~/.zshrc, after compinit
      clisup completion fish > ~/.config/fish/completions/clisup.fish
    """
    maker = _maker(shell, click.get_current_context().find_root().command)
    click.echo(maker.source_template % maker.source_vars())  # source() would start a bash to get its version
    return 0


def complete(instruction: str, root: click.Command) -> int:
    """Complete a command line of `root`. `instruction` is the value of `VARIABLE`, such as `bash_complete`.

    Print nothing for another instruction, or if anything fails.
    """
    shell, _, wanted = instruction.partition("_")
    if shell not in SHELLS or wanted != "complete":
        return 1
    try:
        click.echo(_maker(shell, root).complete())
    except Exception:  # a shell would print the error into the command line
        return 1
    return 0


def _maker(shell: str, root: click.Command) -> ShellComplete:
    found = get_completion_class(shell)
    assert found is not None
    return found(root, {}, "clisup", VARIABLE)

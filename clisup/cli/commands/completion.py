"""`clisup completion`: completion in shells, by click's protocol, with sessions and backends from the daemon.

A key press waits for the result: the daemon gets `LIMIT_S` at most, and failures print nothing into the command line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class
from click.types import StringParamType

__all__ = ["LIMIT_S", "MOST", "SHELLS", "VARIABLE", "complete", "complete_names", "completion"]

VARIABLE = "_CLISUP_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
LIMIT_S = 1.0
"""Seconds for the requests to the daemon."""

MOST = 200
"""Limit of offered sessions; the newest come first."""

_CLOSED_TOO = ("logs", "delete", "fork", "record", "status")
_Items = list[CompletionItem]


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


def complete_names(command: click.Command) -> None:
    """Make parameters that name a session or a backend complete with their names."""
    for param in command.params:
        kind = _TYPES.get(param.name or "")
        if kind is not None and isinstance(param.type, StringParamType):
            param.type = kind
    if isinstance(command, click.Group) and isinstance(command.commands, dict):
        for inner in command.commands.values():
            complete_names(inner)


class _NameType(StringParamType):
    """String with candidates from `look`."""

    def __init__(self, look: Callable[[str], _Items]) -> None:
        self._look = look

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
        """Return the candidates that begin with `incomplete`; none if the daemon is away or slow."""
        found: _Items = []

        def ask() -> None:
            try:
                found.extend(self._look(ctx.info_name or ""))
            except Exception:  # as in `complete`
                pass

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(LIMIT_S)
        return [item for item in [*found] if item.value.startswith(incomplete)]


def _sessions(command_name: str) -> _Items:
    from clisup.cli.status.columns import short_ids
    from clisup.client.sync import Client

    with Client.connect(name="clisup-completion") as client:
        summaries = list(client.call("session/list", limit=MOST)["sessions"])
        if command_name in _CLOSED_TOO:
            summaries += client.call("session/list", limit=MOST, state="closed")["sessions"]
    short = short_ids([s["session_id"] for s in summaries])
    return [CompletionItem(short[s["session_id"]], help=_about(s)) for s in summaries]


def _about(s: dict[str, Any]) -> str:
    from clisup.cli.views.terminal import clip, duration

    labels = " ".join(f"{name}={value}" for name, value in s["labels"].items())
    return clip(f"{s['backend']}, {s['state']}, {duration(s.get('age_s'))} old {labels}".rstrip(), 60)


def _backends(_command: str) -> _Items:
    from clisup.client.sync import Client

    with Client.connect(name="clisup-completion") as client:
        return [CompletionItem(name) for name in client.server.get("backends") or ()]


_TYPES = {
    "session": _NameType(_sessions),
    "sessions": _NameType(_sessions),
    "follow": _NameType(_sessions),
    "backend": _NameType(_backends),
}

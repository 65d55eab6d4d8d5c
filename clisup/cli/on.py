"""The option `--on NAME` and sessions of the form `BOX/SESSION`: which box a command asks.

Nothing of clisup.fleet is loaded here unless a command names a box.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from clisup.cli.failure import usage
from clisup.locations import HERE

__all__ = [
    "APPROVAL",
    "LOCAL",
    "REFUSED",
    "SESSION",
    "box_of_command",
    "fleet_option",
    "on_option",
    "reaching",
    "with_on",
]

VARIABLE = "CLISUP_ON"
_ON, _PREFIX, _PLAIN, _FLEET = "clisup.on", "clisup.box", "clisup.plain", "clisup.fleet"
_Command = TypeVar("_Command", bound=Callable[..., object])

_FILES = "it reads files of the machine on which it runs"
REFUSED: dict[str, str] = {
    "start": "a daemon is started on its own machine",
    "serve": "a daemon is started on its own machine",
    "setup": "it writes the configuration of this machine",
    "install": "it writes units of this machine",
    "uninstall": "it removes units of this machine",
    "config": "it reads and writes the configuration of this machine",
    "socket": "it is about the socket of this machine",
    "resume": "it looks for transcripts on this machine",
    "debug": _FILES,
    "record": _FILES,
    "replay": _FILES,
}
"""Commands that cannot work on a box, and why. They refuse `--on` and `CLISUP_ON`: run them there, through ssh."""

LOCAL = ("demo", "completion", "man", "mcp-bridge", "version", "workflow", "fleet")
"""Commands that ask no daemon. They refuse `--on` and ignore `CLISUP_ON`."""


class BoxPrefix(click.ParamType[str]):
    """Name that may begin with a box: the box is noted, and the rest is the value."""

    name = "text"

    def __init__(self, *, rest_has_slashes: bool) -> None:
        self._rest_has_slashes = rest_has_slashes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        box, slash, rest = str(value).partition("/")
        if ctx is None or ctx.resilient_parsing:
            return str(value)
        if not slash or (box != HERE and not self._is_box(box)):
            ctx.meta[_PLAIN] = value
            return str(value)
        if ctx.meta.setdefault(_PREFIX, box) != box:
            raise usage(f"cannot reach two boxes at once: {ctx.meta[_PREFIX]} and {box}", hint="one command for each")
        return rest

    def _is_box(self, name: str) -> bool:
        """Tell whether a box has this name. Raises `UsageError(box_unknown)` if the name can be nothing else."""
        from clisup.fleet.book import box_named, boxes

        if self._rest_has_slashes:
            return name in boxes(os.environ)
        return bool(box_named(name, os.environ))


SESSION = BoxPrefix(rest_has_slashes=False)
APPROVAL = BoxPrefix(rest_has_slashes=True)


def _complete_box(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from clisup.errors import ClisupError
    from clisup.fleet.book import boxes

    try:
        known = boxes(os.environ)
    except ClisupError:  # a shell would print the error into the command line
        return []
    return [CompletionItem(name, help=box.url) for name, box in known.items() if name.startswith(incomplete)]


def _noted(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    if ctx.meta.setdefault(_ON, value) != value and not ctx.resilient_parsing:
        raise usage(f"cannot reach two boxes at once: {ctx.meta[_ON]} and {value}", hint="one command for each")


def on_option(*, hidden: bool = False) -> click.Option:
    """Return the option `--on`."""
    return click.Option(
        ["--on"], metavar="BOX", expose_value=False, callback=_noted, hidden=hidden, shell_complete=_complete_box,
        help="Ask the daemon of this box of clisup fleet, never another one.",
    )  # fmt: skip


def fleet_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--fleet`. It excludes `--on`, and overrides `CLISUP_ON`."""
    return click.option("--fleet", "everywhere", is_flag=True, callback=_checked_fleet, help=help_text)


def _checked_fleet(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    if value:
        ctx.meta[_FLEET] = True
    return value


def box_of_command(ctx: click.Context) -> str:
    """Return the box that the command line names, or ""."""
    named, prefix = ctx.meta.get(_ON), ctx.meta.get(_PREFIX)
    if named and _FLEET in ctx.meta:
        raise usage("cannot ask one box and all boxes", hint="leave out --on or --fleet")
    if named and prefix and named != prefix:
        raise usage(f"cannot reach two boxes at once: {named} and {prefix}", hint="leave one of them out")
    if prefix and not named and _PLAIN in ctx.meta:
        raise usage(
            f"cannot tell on which box {ctx.meta[_PLAIN]!r} is, because another name has the box {prefix}",
            hint=f"give each its box, or --on {prefix}",
        )
    return str(named or prefix or "")


def with_on(command: click.Command, path: str) -> click.Command:
    """Return the command `path` of the tree with `--on`, and its subcommands with it. Does nothing the second time."""
    if any(param.name == "on" for param in command.params):
        return command
    command.params.append(on_option(hidden=path in REFUSED or path in LOCAL))
    if command.callback is not None:
        command.callback = _reaching(command.callback, path)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            inner.params.append(on_option(hidden=path in REFUSED or path in LOCAL))
            assert inner.callback is not None
            inner.callback = _reaching(inner.callback, path)
    return command


def _reaching(callback: Callable[..., Any], path: str) -> Callable[..., Any]:
    @functools.wraps(callback)
    def run(*args: Any, **values: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is not None:
            return callback(*args, **values)
        box = box_of_command(ctx)
        _check(path, box or ("" if path in LOCAL else os.environ.get(VARIABLE, "")))
        with reaching(box):
            return callback(*args, **values)

    return run


def _check(path: str, box: str) -> None:
    if not box or box == HERE:
        return
    if path in LOCAL:
        raise usage(f"cannot run {path} on box {box}, because it asks no daemon", hint="leave out --on")
    if path in REFUSED:
        hint = f"run it there: ssh HOST clisup {path}; {VARIABLE} is set" if os.environ.get(VARIABLE) else ""
        raise usage(
            f"cannot run {path} on box {box}, because {REFUSED[path]}",
            hint=hint or f"run it there: ssh HOST clisup {path}",
        )


@contextmanager
def reaching(box: str) -> Iterator[None]:
    """Let clients of this process ask `box` inside the block. Raises `UsageError(box_unknown)`; "" changes nothing."""
    if not box:
        yield
        return
    if box != HERE:
        from clisup.fleet.book import box_named

        box_named(box, os.environ)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = box
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before

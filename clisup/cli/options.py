"""Options, callbacks, groups and completion that several commands share."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from clisup.cli.failure import usage
from clisup.cli.on import SESSION, box_of_command
from clisup.cli.status.columns import short_ids
from clisup.cli.views.terminal import clip, duration
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.locations import box_of, socket_for_client

__all__ = [
    "LIMIT_S",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MAX_USD",
    "MOST",
    "SHORT_HELP",
    "CommandGroup",
    "HelpGroup",
    "absolute",
    "chosen_box",
    "complete_backend",
    "complete_session",
    "config_option",
    "daemon_place_options",
    "http_options",
    "in_utf8",
    "json_file",
    "json_option",
    "labels_of",
    "limit",
    "named",
    "root_directory",
    "session_argument",
    "session_directory",
    "text_file",
    "turn_id",
    "utf8",
]

SHORT_HELP = 90
"""Characters of a command's first sentence in a list of commands."""

MAX_USD = 1e9
MAX_COUNT = 2**53
MAX_TIME_LIMIT_S = 31_536_000.0
MAX_SECONDS = 3.2e9
"""The daemon's bounds of a budget (`clisup.model.sessions.budget`), checked here before a command changes anything."""

_Callback = Callable[[click.Context, click.Parameter, Any], Any]
_Command = TypeVar("_Command", bound=Callable[..., object])
_Text = TypeVar("_Text", str, None)


class CommandGroup(click.Group):
    """Group of commands. Its help lists the first sentence of each command whole."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. click does not name the command whose option lacks a value; the hint needs it."""
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
        """Write each name with the first sentence of its command."""
        found = [(name, self.get_command(ctx, name)) for name in names]
        formatter.write_dl([(name, command.get_short_help_str(SHORT_HELP)) for name, command in found if command])


class HelpGroup(CommandGroup):
    """Group that prints its help when no command is named."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, invoke_without_command=True, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


# -- completion ---------------------------------------------------------------------------------------------------------
# A key press waits for the candidates: the daemon gets `LIMIT_S` at most, and failures give no candidates.

LIMIT_S = 1.0
"""Seconds for the requests to the daemon."""

MOST = 200
"""Limit of offered sessions; the newest come first."""

_WITH_CLOSED = ("logs", "export", "delete", "fork", "record", "status", "diff", "land", "discard", "handover")


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sessions whose short id begins with `incomplete`."""
    if box_of_command(ctx):
        return []  # ssh takes longer than a key press may wait
    return candidates(lambda: _sessions(ctx.info_name in _WITH_CLOSED), incomplete)


def complete_backend(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the backends whose name begins with `incomplete`."""
    return candidates(_backends, incomplete)


def candidates(ask: Callable[[], list[CompletionItem]], incomplete: str) -> list[CompletionItem]:
    """Return the items of `ask` that begin with `incomplete`; none if the daemon is away or slow."""
    found: list[CompletionItem] = []

    def run() -> None:
        try:
            found.extend(ask())
        except Exception:  # a shell would print the error into the command line
            pass

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    return [item for item in [*found] if item.value.startswith(incomplete)]


def _sessions(with_closed: bool) -> list[CompletionItem]:
    with Client.connect(name="clisup-completion") as client:
        rows = list(client.call("session/list", limit=MOST)["sessions"])
        if with_closed:
            rows += client.call("session/list", limit=MOST, state="closed")["sessions"]
    short = short_ids([s["session_id"] for s in rows])
    return [CompletionItem(short[s["session_id"]], help=_about(s)) for s in rows]


def _about(s: JsonObject) -> str:
    labels = " ".join(f"{name}={value}" for name, value in s["labels"].items())
    return clip(f"{s['backend']}, {s['state']}, {duration(s.get('age_s'))} old {labels}".rstrip(), 60)


def _backends() -> list[CompletionItem]:
    with Client.connect(name="clisup-completion") as client:
        return [CompletionItem(name) for name in client.server.get("backends") or ()]


# -- options ------------------------------------------------------------------------------------------------------------


def json_option(help_text: str) -> Callable[[_Command], _Command]:
    """Return the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


session_argument = click.argument("session", type=SESSION, shell_complete=complete_session)

config_option = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(),
    help="The configuration file (default: ~/.config/clisup/config.toml).",
)


def http_options(port: int, url: str) -> Callable[[_Command], _Command]:
    """Add the options of an HTTP server: `--port` with this default, `--bind`, `--url` with this help, and those of TLS."""

    def add(command: _Command) -> _Command:
        for option in (
            click.option("--tls-key", metavar="FILE", help="Key of the certificate."),
            click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM)."),
            click.option("--url", metavar="URL", help=url),
            click.option("--bind", metavar="ADDRESS",
                         help="Address to listen on, by default 127.0.0.1. Others than loopback need TLS."),
            click.option("--port", type=click.IntRange(1, 65535), help=f"Port; by default {port}."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


def daemon_place_options(command: _Command) -> _Command:
    """Add `--config` and `--state-dir`: where a daemon that is not running keeps its files."""
    config = click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        help="The daemon's configuration, if it was started with --config.",
    )
    state_dir = click.option(
        "--state-dir", metavar="DIRECTORY", type=click.Path(), help="The state directory, if no daemon is running."
    )
    return config(state_dir(command))


# -- values -------------------------------------------------------------------------------------------------------------


def in_utf8(text: _Text, what: str, hint: str = "") -> _Text:
    """Return the text if it can be sent. Raises `UsageError` (cannot `what`) if its bytes are not UTF-8."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise usage(f"cannot {what}, because it is not UTF-8", hint=hint) from None
    return text


def utf8(what: str, hint: str = "") -> _Callback:
    """Return a callback that checks a text, or several, for the daemon. `what` is the action that fails otherwise."""

    def check(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            in_utf8(text, what, hint)
        return value

    return check


def limit(most: float) -> _Callback:
    """Return a callback that accepts a number above 0 and up to `most`."""

    def check(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
        if value is None or (math.isfinite(value) and 0 < value <= most):
            return value
        raise click.BadParameter(f"{value} is no limit: give a number above 0, and at most {most:.0f}")

    return check


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def _seconds(value: str) -> float | None:
    """Return the seconds of a time such as `90`, `10m` or `7d`, or None for other text."""
    number, unit = (value[:-1], value[-1:]) if value[-1:] in _UNITS else (value, "s")
    return float(number) * _UNITS[unit] if number.isascii() and number.replace(".", "", 1).isdecimal() else None


def time_limit(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a limit such as `10m`: above 0, and a year at most."""
    seconds = None if value is None else _seconds(value)
    if value is None or (seconds is not None and 0 < seconds <= MAX_TIME_LIMIT_S):
        return seconds
    raise click.BadParameter(f"{value!r} is no time: give a number with s, m, h, d or w, such as 90s or 10m")


def age(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of an age such as `7d`. Only 0 needs no unit."""
    seconds = None if value is None else _seconds(value)
    unit = value is None or value == "0" or value[-1:] in _UNITS
    if value is None or (unit and seconds is not None and seconds <= MAX_SECONDS):
        return seconds
    raise click.BadParameter(f"{value!r} is no age: give a number and one of s, m, h, d, w, such as 7d, or 0")


def labels_of(pairs: tuple[str, ...]) -> dict[str, str] | None:
    """Return the labels of all `--label K=V`, or None without any. Raises `UsageError`."""
    for pair in pairs:
        if "=" not in pair:
            raise usage(f"cannot use the label {pair!r}, because it is not of the form K=V", hint="--label ticket=4711")
    return dict(pair.split("=", 1) for pair in pairs) or None


def turn_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Check the id of a turn: `3` and `t3` name the same turn."""
    if value is None:
        return None
    digits = value.lower().removeprefix("t")
    if digits.isascii() and digits.isdecimal() and digits[0] != "0" and len(digits) <= 16:
        return f"t{digits}"
    raise click.BadParameter(f"{value!r} is no turn: turns are named t1, t2, ...; `clisup logs` shows them")


def absolute(path: str, *, otherwise: str) -> str:
    """Return the absolute path. Raises `UsageError` if the working directory no longer exists.

    `otherwise` tells the user what to do instead of changing the directory.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise usage(
            "cannot tell the working directory, because it is gone", hint=f"cd elsewhere, or {otherwise}"
        ) from None


def chosen_box() -> str:
    """Return the name of the box that clients of this process ask, or "" for this machine's daemon."""
    return box_of(socket_for_client(os.environ, os.getuid()))


def named(session_id: str) -> str:
    """Return a session as a later command has to name it: with its box, if this command asks one."""
    box = chosen_box()
    return f"{box}/{session_id}" if box else session_id


def text_file(path: str | None) -> str | None:
    """Return the text of a file, or None without a path. Raises `UsageError`."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read {path}, because {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None


def json_file(path: str | None, hint: str) -> JsonObject | None:
    """Return the JSON object in a file, or None without a path. Raises `UsageError`; `hint` shows such an object."""
    text = text_file(path)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise usage(f"cannot use {path}, because it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise usage(f"cannot use {path}, because it does not hold a JSON object", hint=hint)
    return value


def root_directory(path: str, option: str) -> str:
    """Return the resolved directory that bounds the sessions of a server. Raises `UsageError` if there is none.

    Directories of a box are on another machine, and are not looked up here.
    """
    found = os.path.realpath(absolute(path, otherwise=f"{option} DIRECTORY"))
    if not chosen_box() and not os.path.isdir(found):
        raise usage(f"{option} {path}: there is no such directory", hint="make the directory, or name another one")
    return found


def session_directory(given: str | None, *, otherwise: str = "-C DIRECTORY") -> str:
    """Return the directory of a new session: by default the working directory, as on this machine.

    A box has other directories: there the whole path must be given. Raises `UsageError`.
    """
    box = chosen_box()
    if not box:
        return absolute(given or ".", otherwise=otherwise)
    if given is None or not given.startswith("/"):
        reason = "no directory is named" if given is None else f"{given} is no whole path"
        raise usage(f"cannot tell the directory on box {box}, because {reason}", hint="-C /DIRECTORY of the box")
    return os.path.normpath(given)

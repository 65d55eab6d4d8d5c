"""`clisup config`: check the configuration, show its values and origins, print its schema. No daemon is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from clisup.cli.failure import usage
from clisup.cli.options import HelpGroup, config_option, json_option
from clisup.cli.views.terminal import plain
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.config.keys import key_of
from clisup.errors import EXIT_CONFIGURATION, EXIT_OK, ClisupError

if TYPE_CHECKING:
    from clisup.daemon.ops.offline import Shown, Value
    from clisup.daemon.start import Flags

__all__ = ["config"]


@click.group("config", cls=HelpGroup)
def config() -> None:
    """Check the configuration, show its values, print its schema.

    \b
    Example:
      clisup config check
      clisup config show --origin daemon
    """


@config.command("check")
@config_option
@json_option("Print the findings as JSON.")
def check(config: str | None, as_json: bool) -> int:
    """Report every mistake in the configuration.

    The check covers everything that would keep a daemon from starting: keys, values, scrub lists and backends, with file
    and line. To check that the CLIs are installed and logged in, use clisup doctor.

    Exit code 78 for a mistake.

    \b
    Example:
      clisup config check --config ./clisup.toml
      clisup config check && clisup daemon reload
    """
    from clisup.daemon.ops.offline import check_configuration

    found = check_configuration(_flags(config))
    if as_json:
        print(json.dumps({**found._asdict(), "ok": not found.problems}, ensure_ascii=False))
    elif found.problems:
        print("\n".join(plain(line) for problem in found.problems for line in _problem(found.file, problem)))
    else:
        print(plain(f"{found.file}: no mistakes" if found.exists else f"{found.file}: no such file, all defaults"))
    return EXIT_CONFIGURATION if found.problems else EXIT_OK


def _problem(file: str, problem: JsonObject) -> Iterator[str]:
    place = f"{file}:{problem['line']}" if "line" in problem else file
    key = f"{problem['key']} " if str(problem["message"]).startswith("is ") else ""
    yield f"{place}: {key}{problem['message']}"
    if problem.get("hint"):
        yield f"  hint: {problem['hint']}"


@config.command("show")
@click.argument("prefixes", metavar="[KEY]...", nargs=-1)
@config_option
@click.option("--socket", type=click.Path(), help="As for clisup serve.")
@click.option("--state-dir", metavar="DIRECTORY", type=click.Path(), help="As for clisup serve.")
@click.option("--origin", is_flag=True, help="Show the origin of each value: file and line, variable, flag, default.")
@json_option("Print everything as JSON, with origins and when a change takes effect.")
def show(
    prefixes: tuple[str, ...],
    config: str | None,
    socket: str | None,
    state_dir: str | None,
    origin: bool,
    as_json: bool,
) -> int:
    """Show every value that a daemon started here and now would have.

    Flags override CLISUP_* variables, variables override the file, and the file overrides defaults. With KEY, show only the
    keys that begin with KEY. Values of variables are hidden: [set]. The output is TOML; its last line says whether the
    running daemon has other values.

    \b
    Example:
      clisup config show --origin daemon.retention
      clisup config show backends.claude.timeouts
      clisup config show --json | jq -r '.values[] | select(.origin.kind != "default") | .key'
    """
    from clisup.daemon.ops.offline import show_configuration

    shown = show_configuration(_flags(config, socket, state_dir))
    chosen = [value for value in shown.values if not prefixes or any(_below(value.key, prefix) for prefix in prefixes)]
    if prefixes and not chosen:
        raise usage(
            f"cannot show {' '.join(prefixes)}, because there is no such key",
            hint="see docs/reference/configuration.md",
        )
    running = _running(shown)
    if as_json:
        print(json.dumps(_as_json(shown, chosen, running), ensure_ascii=False))
        return EXIT_OK
    quiet = set() if prefixes else {f"backends.{name}" for name in shown.plain}
    for value in chosen:
        if not any(_below(value.key, name) for name in quiet):
            print(plain(_line(value, shown.file if origin else None)))
    if quiet:
        print(plain(f"# all defaults: {', '.join(sorted(quiet))}"))
    print(plain(f"# {_daemon_words(shown, running)}"))
    return EXIT_OK


def _below(key: str, prefix: str) -> bool:
    prefix = prefix.rstrip(".")
    return key == prefix or key.startswith(f"{prefix}.")


def _line(value: Value, file: str | None) -> str:
    line = f"{value.key} = {_toml(value.value)}"
    if file is None:
        return line
    kind, name, number = value.origin
    return f"{line.ljust(56)}  # {f'{file}:{number}' if kind == 'file' else ' '.join(filter(None, (kind, name)))}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, ensure_ascii=False)


def _as_json(shown: Shown, chosen: list[Value], running: JsonObject) -> JsonObject:
    values = [
        {
            "key": value.key,
            "value": value.value,
            "origin": {name: part for name, part in value.origin._asdict().items() if part is not None},
            "takes_effect": value.effect,
        }
        for value in chosen
    ]
    return {"file": shown.file, "exists": shown.exists, "values": values, "daemon": running}


# -- the running daemon -------------------------------------------------------------------------------------------------


def _running(shown: Shown) -> JsonObject:
    """Ask the daemon at the socket: is it `running`, which `file` does it read, which keys `differ`, or why it `refuses`."""
    try:
        with Client.connect(shown.socket, name="clisup-config") as client:
            answer = client.call("daemon/reload", dry_run=True)
    except ClisupError as error:
        if error.kind == "daemon_not_running":
            return {"running": False}
        return {"running": True, "refuses": error.message}
    return {"running": True, "file": answer["file"], "differ": [change["key"] for change in answer["changed"]]}


def _way(keys: list[str]) -> str:
    """Return the commands with which the daemon takes these keys from the file."""
    waits = all((row := key_of(key)) is not None and row.effect == "start" for key in keys)
    return "clisup stop, then clisup start" if waits else "clisup daemon reload"


def _daemon_words(shown: Shown, running: JsonObject) -> str:
    if not running["running"]:
        return f"no daemon runs at {shown.socket}"
    if "refuses" in running:
        return f"the running daemon refuses its file as it is now: {running['refuses']}"
    if running["file"] != shown.file:
        return f"the running daemon reads another file: {running['file']}"
    if running["differ"]:
        return f"the running daemon has other values of: {', '.join(running['differ'])} ({_way(running['differ'])})"
    return "the running daemon has these values"


# -- the schema -------------------------------------------------------------------------------------------------------


@config.command("schema")
def schema() -> int:
    """Print the JSON Schema of the configuration file.

    Editors with a language server for TOML (taplo) check and explain keys with it, if the file begins with
    `#:schema ./config.schema.json`.

    \b
    Example:
      clisup config schema > ~/.config/clisup/config.schema.json
    """
    from clisup.config.keys import config_schema

    print(json.dumps(config_schema(), indent=2, ensure_ascii=False))
    return EXIT_OK


def _flags(config: str | None, socket: str | None = None, state_dir: str | None = None) -> Flags:
    from clisup.daemon.start import Flags

    return Flags(config=config, socket=socket, state_dir=state_dir)

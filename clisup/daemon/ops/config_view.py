"""Configuration for `clisup config`, without a daemon: its problems, and every value with its origin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import SecretStr

from clisup.config.keys import SECRET, Effect, flat, key_of, parts_of
from clisup.config.model import Config
from clisup.config.origin import Origin, Path, lines_of
from clisup.daemon.backends import Backends
from clisup.daemon.start import Flags, Place, config_path, place_of
from clisup.errors import ConfigurationError
from clisup.host.config_file import ConfigFile, with_credentials
from clisup.host.otlp import check_installed
from clisup.host.process.carrying import taken_environment
from clisup.locations import SOCKET_PATH_LIMIT
from clisup.policy.secrets.redact import Redactor

_TOML_LINE = re.compile(r"\(at line (\d+)")


class Checked(NamedTuple):
    """Checked file. `problems` are `{key, line, message, nearest, hint}` without unknown parts."""

    file: str
    exists: bool
    problems: list[dict[str, Any]]


class Value(NamedTuple):
    """Key with its value for JSON (a secret as `[set]`) and its origin."""

    key: str
    value: Any
    origin: Origin
    effect: Effect


class Shown(NamedTuple):
    """File, the daemon's socket, and every value. `plain` are backends without settings."""

    file: str
    exists: bool
    socket: str
    values: list[Value]
    plain: frozenset[str]


def check_configuration(flags: Flags) -> Checked:
    """Find everything that prevents a start with this configuration. Never raises for an invalid file."""
    env = taken_environment()
    file = ConfigFile(*config_path(flags, env))
    try:
        text = file.text()
        config = file.read()
    except ConfigurationError as error:
        return Checked(file.path, os.path.exists(file.path), _told(error))
    lines = lines_of(text or "")
    problems = [problem for name in config.backends if (problem := _backend_problem(config, name, env, lines))]
    problems += filter(None, (_place_problem(_place(flags, config, env), lines), _tracing_problem(config, lines)))
    return Checked(file.path, text is not None, problems)


def _told(error: ConfigurationError) -> list[dict[str, Any]]:
    """Return the problems of an error, or the error itself."""
    if told := error.data.get("problems"):
        told.sort(key=lambda problem: problem.get("line", 0))
        return [{name: value for name, value in problem.items() if name != "path"} for problem in told]
    found = _TOML_LINE.search(error.message)
    return [{"message": error.message, "hint": error.hint, **({"line": int(found[1])} if found else {})}]


def _backend_problem(
    config: Config, name: str, env: Mapping[str, str], lines: Mapping[Path, int]
) -> dict[str, Any] | None:
    try:
        alone = config.model_copy(update={"backends": {name: config.backends[name]}})
        Backends(with_credentials(alone, None, env), env)
    except ConfigurationError as error:
        key = error.data.get("key", f"backends.{name}")
        return _problem(key, error.message, error.hint, lines.get(("backends", name)))
    return None


def _place_problem(place: Place, lines: Mapping[Path, int]) -> dict[str, Any] | None:
    length = len(os.fsencode(place.socket))
    if length <= SOCKET_PATH_LIMIT:
        return None
    message = f"the socket's path has {length} bytes, and {SOCKET_PATH_LIMIT} is the most: {place.socket}"
    return _problem("daemon.socket", message, "choose a shorter one", lines.get(("daemon", "socket")))


def _tracing_problem(config: Config, lines: Mapping[Path, int]) -> dict[str, Any] | None:
    try:
        check_installed(config.tracing)
    except ConfigurationError as error:
        return _problem("tracing.enabled", error.message, error.hint, lines.get(("tracing", "enabled")))
    return None


def _problem(key: str, message: str, hint: str, line: int | None) -> dict[str, Any]:
    return {"key": key, "message": message, "hint": hint, **({"line": line} if line else {})}


def show_configuration(flags: Flags) -> Shown:
    """Return every value of a daemon that would be started here now. Raises `ConfigurationError`."""
    env = taken_environment()
    file = ConfigFile(*config_path(flags, env))
    text, config = file.text(), file.read()
    place = _place(flags, config, env)
    lines = lines_of(text or "")
    values = list(_values(config, lines, place, flags, env))
    return Shown(file.path, text is not None, place.socket, values, config.defaults)


def _values(
    config: Config, lines: Mapping[Path, int], place: Place, flags: Flags, env: Mapping[str, str]
) -> Iterator[Value]:
    hide = Redactor()
    for key, value in flat(config):
        row = key_of(key)
        assert row is not None, f"{key} is in no row of the table of keys"
        origin = _origin(key, value, lines)
        if key in ("daemon.socket", "daemon.state_dir"):
            name = key.removeprefix("daemon.")
            origin = _place_origin(name, getattr(flags, name), env, origin)
            yield Value(key, getattr(place, name), origin, row.effect)
        else:
            yield Value(key, _sayable(value, hide), origin, row.effect)


def _origin(key: str, value: Any, lines: Mapping[Path, int]) -> Origin:
    line = lines.get(parts_of(key))
    return Origin("default") if line is None or value == "" else Origin("file", None, line)


def _place_origin(name: str, flag: str | None, env: Mapping[str, str], otherwise: Origin) -> Origin:
    variable = f"CLISUP_{name.upper()}"
    if flag:
        return Origin("flag", f"--{name.replace('_', '-')}")
    return Origin("environment", variable) if env.get(variable) else otherwise


def _sayable(value: Any, hide: Redactor) -> Any:
    """Return the value for JSON, without marked secrets and without text that looks like a secret."""
    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_sayable(item, hide) for item in value]
    if isinstance(value, dict):
        return {name: _sayable(item, hide) for name, item in value.items()}
    return value


def _place(flags: Flags, config: Config, env: Mapping[str, str]) -> Place:
    return place_of(flags, config.daemon.socket, config.daemon.state_dir, env)

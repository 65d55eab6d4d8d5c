"""Reader of the configuration file, of values in files of their own, and of the built-in prices.

Values are `env_files` of a backend, and credentials that systemd passes. systemd removes `$CREDENTIALS_DIRECTORY` with
the service (systemd.exec(5), `LoadCredential=`). So the daemon reads the directory once, at the start, and a restart in
place hands its contents on in memory.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from clisup.config.model import (
    BackendConfig,
    Config,
    NotifyConfig,
    parse_config,
    problems_of,
    refusal,
    with_env,
    with_secret,
)
from clisup.config.origin import lines_of
from clisup.errors import ConfigurationError
from clisup.host.safe_paths import check_safe_file
from clisup.locations import MAX_CONFIG_BYTES, checked_toml, config_bytes, in_home
from clisup.model.structs import JsonObject
from clisup.policy import prices
from clisup.policy.environment.scrub import MAX_ENTRY_BYTES
from clisup.policy.prices import Price


class ConfigFile(NamedTuple):
    """Configuration file of a daemon. A file that the user named is `required` to exist."""

    path: str
    required: bool

    def read(self) -> Config:
        """Return the configuration, or all defaults if an optional file is missing. Raises `ConfigurationError`."""
        if (text := self.text()) is None:
            return parse_config({})
        raw = _parse(text, self.path)
        try:
            return parse_config(raw, source=self.path)
        except ConfigurationError as error:
            raise refusal(problems_of(error), self.path, lines_of(text)) from None

    def text(self) -> str | None:
        """Return the text, or None if an optional file is missing. Raises `ConfigurationError`."""
        path = self.path
        # The user did not name this file, and HOME may belong to somebody else. The file says which programs are run.
        if not self.required:
            check_safe_file(path, "read")
        try:
            return _data(path).decode("utf-8-sig")  # editors of Windows write a byte order mark
        except FileNotFoundError:
            if self.required:
                raise ConfigurationError(
                    f"cannot read {path}, because there is no such file",
                    hint="correct --config, or CLISUP_CONFIG",
                    source=path,
                ) from None
            return None
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"cannot read {path}, because it is not UTF-8 at byte {error.start}",
                hint="save it as UTF-8",
                source=path,
            ) from None
        except OSError as error:
            hint = "name a file" if isinstance(error, IsADirectoryError) else "check its permissions"
            raise ConfigurationError(
                f"cannot read {path}, because of: {error.strerror}", hint=hint, source=path
            ) from None


def _data(path: str) -> bytes:
    """Return the bytes of the file. A FIFO and a huge file are refused."""
    try:
        data = config_bytes(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ConfigurationError(
            f"cannot read {path}, because it is no regular file", hint="name a file, or correct --config", source=path
        ) from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(
            f"cannot read {path}, because it has more than {MAX_CONFIG_BYTES} bytes",
            hint="see whether that is the right file",
            source=path,
        )
    return data


def _parse(text: str, path: str) -> JsonObject:
    try:
        return tomllib.loads(checked_toml(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"cannot read {path}, because it is not TOML: {error}", hint="correct that line", source=path
        ) from None
    except (RecursionError, ValueError) as error:  # tomllib does not wrap these: a number of 5,000 digits, say
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "one of its numbers is too long"
        raise ConfigurationError(f"cannot read {path}, because {reason}", hint="correct it", source=path) from None


PREFIX = "credential:"
MAX_CREDENTIALS_BYTES = 1024 * 1024  # systemd's own limit for all credentials of a service
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,255}")


def read_credentials(env: Mapping[str, str], carried: Mapping[str, str]) -> dict[str, str]:
    """Return the contents of `$CREDENTIALS_DIRECTORY` by name, merged over those that a previous daemon had read.

    Files that are not text are left out. Raises `ConfigurationError` if the directory holds more than systemd would
    pass.
    """
    directory, found, total = env.get("CREDENTIALS_DIRECTORY", ""), dict(carried), 0
    try:
        names = sorted(os.listdir(directory)) if directory else []
    except OSError:
        return found  # the directory is gone with an earlier life of this service
    for name in names:
        try:
            data = _read(os.path.join(directory, name), MAX_CREDENTIALS_BYTES)
            total += len(data)
            found[name] = data.decode()
        except (OSError, UnicodeDecodeError):
            continue
        if total > MAX_CREDENTIALS_BYTES:
            raise ConfigurationError(f"cannot take what lies in {directory}, because it is more than 1 MiB")
    return found


def with_credentials(config: Config, credentials: Mapping[str, str] | None, env: Mapping[str, str]) -> Config:
    """Return the configuration with the values of each `env_files` in the backend's `env`, and of each `[[notify]]` secret.

    `credentials` is None for a command that systemd does not start: values that only the daemon gets then stay out.
    Raises `ConfigurationError` that names the key and never the value.
    """
    if any(table.secret_env or table.secret_file for table in config.notify):
        tables = [_signed(f"notify.{at}", table, credentials, env) for at, table in enumerate(config.notify)]
        config = config.model_copy(update={"notify": tables})
    if not any(backend.env_files for backend in config.backends.values()):
        return config
    filled = {
        name: _filled(name, backend, credentials, env) if backend.env_files else backend
        for name, backend in config.backends.items()
    }
    return config.model_copy(update={"backends": filled})


def _signed(
    where: str, table: NotifyConfig, credentials: Mapping[str, str] | None, env: Mapping[str, str]
) -> NotifyConfig:
    """Return the table with its secret in `secret`. A secret that only the daemon gets stays out for other commands."""
    if table.secret_env:
        key, found = f"{where}.secret_env", env.get(table.secret_env)
        if found is None and credentials is not None:
            raise ConfigurationError(
                f"cannot use {key}, because the daemon's environment has no variable {table.secret_env}",
                hint="start the daemon with it, or use secret_file",
                key=key,
            )
    elif table.secret_file.startswith(PREFIX):
        key, found = f"{where}.secret_file", None
        if credentials is not None:
            found = _one_value(key, _credential(key, table.secret_file.removeprefix(PREFIX), credentials))
    elif table.secret_file:
        key = f"{where}.secret_file"
        found = _one_value(key, _read_private(key, _path(key, table.secret_file, env)))
    else:
        return table
    if found is None:
        return table
    try:
        return with_secret(table, found)
    except ValueError as error:
        raise ConfigurationError(f"cannot use {key}: {error}", hint="replace the secret", key=key) from None


def _filled(
    name: str, backend: BackendConfig, credentials: Mapping[str, str] | None, env: Mapping[str, str]
) -> BackendConfig:
    values: dict[str, str] = {}
    for variable, place in backend.env_files.items():
        key = f"backends.{name}.env_files.{variable}"
        if variable in backend.env:
            raise ConfigurationError(
                f"cannot use {key}, because backends.{name}.env sets {variable} as well", hint="take one of them out"
            )
        if not place.startswith(PREFIX):
            values[variable] = _one_value(key, _read_private(key, _path(key, place, env)))
        elif credentials is not None:
            values[variable] = _one_value(key, _credential(key, place.removeprefix(PREFIX), credentials))
    return with_env(backend, values)


def _credential(key: str, name: str, credentials: Mapping[str, str]) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"cannot use {key}, because {name[:64]!r} is no name of a credential", hint="credential:NAME"
        )
    if name not in credentials:
        raise ConfigurationError(
            f"cannot use {key}, because systemd has passed no credential {name!r}",
            hint=f"LoadCredential={name}:/path/of/it in the service's unit, then restart it; docs/how-to/systemd.md",
        )
    return credentials[name]


def _path(key: str, place: str, env: Mapping[str, str]) -> str:
    place = in_home(place, env)
    if not place.startswith("/"):
        raise ConfigurationError(
            f"cannot use {key}, because it is no absolute path", hint='"/path", "~/path" or "credential:NAME"'
        )
    return place


def _read_private(key: str, path: str) -> str:
    """Return the text of a file that belongs to nobody else.

    The checks and the read use one descriptor, whatever file the path names a moment later.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            return _read_own(key, path, file).decode()
    except OSError as error:
        raise ConfigurationError(
            f"cannot use {key}, because {path} cannot be read: {error.strerror}", hint="correct the path, or make it"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"cannot use {key}, because {path} is no UTF-8", hint="correct the file") from None


def _read_own(key: str, path: str, file: BinaryIO) -> bytes:
    info = os.fstat(file.fileno())
    if not stat.S_ISREG(info.st_mode):
        raise ConfigurationError(f"cannot use {key}, because {path} is no regular file", hint="name a file")
    if info.st_mode & 0o077 or info.st_uid not in (os.geteuid(), 0):
        mode = stat.S_IMODE(info.st_mode)
        raise ConfigurationError(
            f"cannot use {key}, because {path} is open to others (mode {mode:o}, uid {info.st_uid})",
            hint=f"chmod 600 {path}",
        )
    return file.read(MAX_ENTRY_BYTES + 1)  # the caller refuses a value that is too long


def _one_value(key: str, text: str) -> str:
    """Return the value without the line end that an editor or `echo` adds."""
    value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise ConfigurationError(f"cannot use {key}, because the file is empty", hint="put the value into it")
    return value


def _read(path: str, limit: int) -> bytes:
    """Return up to one byte more than the limit: the caller refuses a value that is too long."""
    with open(path, "rb") as file:
        return file.read(limit + 1)


PRICE_LIST = Path(prices.__file__).with_name("prices.toml")


@functools.cache
def built_in_prices() -> Mapping[str, Price]:
    """Return the prices by pattern.

    The file is part of the package. An error in it is a fault of clisup itself and is raised unchanged.
    """
    raw = tomllib.loads(PRICE_LIST.read_text(encoding="utf-8"))
    return {pattern: Price.model_validate(price) for pattern, price in raw.items()}

"""Values of variables in files of their own: `env_files` of a backend, and the credentials that systemd passes.

systemd removes `$CREDENTIALS_DIRECTORY` with the service (systemd.exec(5), `LoadCredential=`). The daemon therefore
reads the directory once, at the start. A restart in place hands its contents on in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import BinaryIO

from clisup.config.model import BackendConfig, Config, with_env
from clisup.errors import ConfigurationError
from clisup.locations import in_home
from clisup.policy.environment.scrub import MAX_ENTRY_BYTES

__all__ = ["read_credentials", "with_credentials"]

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
    """Return the configuration with the values of each `env_files` in the backend's `env`.

    `credentials` is None for a command that systemd does not start: values that only the daemon gets then stay out.
    Raises `ConfigurationError` that names the key and never the value.
    """
    if not any(backend.env_files for backend in config.backends.values()):
        return config
    filled = {
        name: _filled(name, backend, credentials, env) if backend.env_files else backend
        for name, backend in config.backends.items()
    }
    return config.model_copy(update={"backends": filled})


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
            hint=f"LoadCredential={name}:/path/of/it in the service's unit, then restart it; docs/systemd.md",
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

"""Reader of the configuration file."""

from __future__ import annotations

import os
import stat
import tomllib
from typing import Any, NamedTuple

from clisup.config.model import Config, parse_config, problems_of, refusal
from clisup.config.origin import lines_of
from clisup.errors import ConfigurationError
from clisup.host.safe_paths import check_safe_file

__all__ = ["MAX_CONFIG_BYTES", "ConfigFile", "read_config"]

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Limit of the file's size. A thousand backends with every key take a quarter of it."""


class ConfigFile(NamedTuple):
    """Configuration file of a daemon. A file that the user named is `required` to exist."""

    path: str
    required: bool

    def read(self) -> Config:
        """Return the configuration in the file. Raises `ConfigurationError`."""
        return read_config(self.path, required=self.required)

    def text(self) -> str | None:
        """Return the text of the file, or None if an optional file is missing. Raises `ConfigurationError`."""
        return _text(self.path, required=self.required)


def read_config(path: str, *, required: bool) -> Config:
    """Return the configuration in `path`, or all defaults if an optional file is missing.

    Raises `ConfigurationError`.
    """
    if (text := _text(path, required=required)) is None:
        return parse_config({})
    raw = _parse(text, path)
    try:
        return parse_config(raw, source=path)
    except ConfigurationError as error:
        raise refusal(problems_of(error), path, lines_of(text)) from None


def _text(path: str, *, required: bool) -> str | None:
    # The user did not name this file, and HOME may belong to somebody else. The file says which programs are run.
    if not required:
        check_safe_file(path, "read")
    try:
        return _data(path).decode()
    except FileNotFoundError:
        if required:
            raise ConfigurationError(
                f"cannot read {path}, because there is no such file",
                hint="correct --config, or CLISUP_CONFIG",
                source=path,
            ) from None
        return None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"cannot read {path}, because it is not UTF-8 at byte {error.start}", hint="save it as UTF-8", source=path
        ) from None
    except OSError as error:
        hint = "name a file" if isinstance(error, IsADirectoryError) else "check its permissions"
        raise ConfigurationError(f"cannot read {path}, because of: {error.strerror}", hint=hint, source=path) from None


def _data(path: str) -> bytes:
    """Return the bytes of the file. A FIFO is refused.

    Waiting for the FIFO's writer would block a thread, and without waiting the FIFO looks empty.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        data = file.read(MAX_CONFIG_BYTES + 1) if stat.S_ISREG(mode) or stat.S_ISCHR(mode) else None  # /dev/null, too
    if data is None:
        raise ConfigurationError(
            f"cannot read {path}, because it is no regular file", hint="name a file, or correct --config", source=path
        )
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(
            f"cannot read {path}, because it has more than {MAX_CONFIG_BYTES} bytes",
            hint="see whether that is the right file",
            source=path,
        )
    return data


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"cannot read {path}, because it is not TOML: {error}", hint="correct that line", source=path
        ) from None
    except (RecursionError, ValueError) as error:  # tomllib does not wrap these: a number of 5,000 digits, say
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "one of its numbers is too long"
        raise ConfigurationError(f"cannot read {path}, because {reason}", hint="correct it", source=path) from None

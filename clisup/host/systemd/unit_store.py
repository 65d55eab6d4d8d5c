"""Unit files on disk: files shipped with the package, and files that a manager reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from clisup.errors import ConfigurationError, WorldError
from clisup.locations import config_home

__all__ = ["SYSTEM_UNITS", "read_unit", "remove_unit", "shipped_unit", "user_units", "write_unit"]

SYSTEM_UNITS = "/etc/systemd/system"
UNIT_LIMIT = 256 * 1024


def user_units(env: Mapping[str, str]) -> str:
    """Return the directory that a user's manager searches first for units of no package (systemd.unit(5))."""
    return os.path.join(config_home(env), "systemd", "user")


def shipped_unit(name: str) -> str:
    """Return the text of a shipped unit: package data in a wheel, `systemd/` in a checkout.

    Raises `ConfigurationError`.
    """
    package = Path(__file__).resolve().parents[2]
    for directory in (package / "systemd_units", package.parent / "systemd"):
        try:
            return (directory / name).read_text(encoding="utf-8")
        except OSError:
            continue
    raise ConfigurationError(f"cannot find {name}, because this clisup is incomplete", hint="install it anew")


def read_unit(path: str) -> str | None:
    """Return the text of a unit, or None if there is no file. Raises `WorldError(storage_failed)`."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(UNIT_LIMIT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed("read", path, error) from None


def write_unit(path: str, text: str) -> None:
    """Write a unit as a whole, readable by all as units are. Raises `WorldError(storage_failed)`."""
    scratch = f"{path}.{os.getpid()}.tmp"  # no manager reads a file with this suffix
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.rename(scratch, path)
    except OSError as error:
        raise _failed("write", path, error) from None


def remove_unit(path: str) -> None:
    """Remove a unit, and its directory of drop-ins if that is then empty. Raises `WorldError(storage_failed)`."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed("remove", path, error) from None
    if os.path.dirname(path).endswith(".d"):
        try:
            os.rmdir(os.path.dirname(path))
        except OSError:
            pass  # the directory holds drop-ins of the user


def _failed(what: str, path: str, error: OSError) -> WorldError:
    return WorldError(
        f"cannot {what} {path}, because of: {error.strerror}",
        kind="storage_failed",
        hint="for a unit of the system: with sudo; else check the directory's owner",
    )

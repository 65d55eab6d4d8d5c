"""Files that `clisup setup` writes: additions to the configuration, and keys in files of their own."""

from __future__ import annotations

import os

from clisup.config.edit import Addition, with_addition
from clisup.errors import UsageError, WorldError

__all__ = ["add_setting", "keep_key", "write_text"]

_HEAD = "# Configuration of clisup, see docs/reference/configuration.md. Begun by `clisup setup`.\n"


def add_setting(path: str, addition: Addition) -> str | None:
    """Add to the configuration file at `path`, and return its former text. Return None if nothing has to be added.

    Raises `UsageError` with the lines to write by hand, and `WorldError(storage_failed)`.
    """
    text = read_text(path)
    changed = with_addition(text or _HEAD, addition)
    if changed is None:
        raise UsageError(
            f"cannot add {addition.key} to {path}, because its [{'.'.join(addition.table)}] is written in another form",
            kind="configuration",
            hint=f"add it by hand: {addition}",
        )
    if changed == text:
        return None
    write_text(path, changed)
    return text or ""


def keep_key(directory: str, name: str, value: str) -> str:
    """Write the value of a variable into a file of its own in `directory`/keys (0600), and return the file's path.

    A file with another value stays as it is, and `UsageError` names it. Raises `WorldError(storage_failed)`.
    """
    path = os.path.join(directory, "keys", name)
    if (found := read_text(path)) is None:
        write_text(path, value + "\n")
    elif found.rstrip("\n") != value:
        raise UsageError(
            f"cannot keep {name}, because {path} has another value", kind="usage", hint="remove that file, then repeat"
        )
    return path


def read_text(path: str) -> str | None:
    """Return the text of a file, or None without a file. Raises `WorldError(storage_failed)`."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed("read", path, error) from None


def write_text(path: str, text: str) -> None:
    """Write a file as a whole, readable by its owner alone or as it was before. A link stays a link."""
    path = os.path.realpath(path)
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
        with open(
            os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline=""
        ) as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise _failed("write", path, error) from None


def _failed(what: str, path: str, error: OSError) -> WorldError:
    return WorldError(
        f"cannot {what} {path}, because of: {error.strerror}",
        kind="storage_failed",
        hint="check the owner of the directory, and the free disk space",
    )

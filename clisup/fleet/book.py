"""Boxes by name: the list that `clisup fleet add` writes, and the other members of the fleet that this box has joined.

The list is `fleet.json` in the configuration directory. It holds names and addresses, and no secret. A member has a socket
on this box, which the fleet's agent opens.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote

from clisup.errors import ConfigurationError, UsageError
from clisup.fleet.boxes import Box, check_name, parse_address
from clisup.fleet.member import joined
from clisup.fleet.places import own_socket, sockets_dir
from clisup.host.files import make_private_dir, write_atomic
from clisup.locations import HERE, config_home

__all__ = ["MAX_BOXES", "add_box", "box_named", "boxes", "list_file", "listed", "members", "remove_box"]

MAX_BOXES = 100
MAX_FILE = 256 * 1024


def list_file(env: Mapping[str, str]) -> str:
    """Return the path of the list."""
    return os.path.join(config_home(env), "clisup", "fleet.json")


def boxes(env: Mapping[str, str]) -> dict[str, Box]:
    """Return the boxes by name: the list, then the members. A listed box hides a member of its name.

    Raises `ConfigurationError` for a damaged file.
    """
    return {**members(env), **listed(env)}


def members(env: Mapping[str, str]) -> dict[str, Box]:
    """Return the other members of this box's fleet, as far as its agent has heard of them."""
    if (own := joined(env)) is None:
        return {}
    directory = sockets_dir(env, os.getuid())
    try:
        names = sorted(entry.removesuffix(".sock") for entry in os.listdir(directory) if entry.endswith(".sock"))
    except OSError:
        return {}
    paths = {name: os.path.join(directory, f"{name}.sock") for name in names[:MAX_BOXES] if name != own.name}
    return {name: Box(name, "unix://" + quote(path)) for name, path in paths.items()}


def listed(env: Mapping[str, str]) -> dict[str, Box]:
    """Return the list, in the order of the file. Raises `ConfigurationError` for a damaged file."""
    path = list_file(env)
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _damaged(path, error.strerror or "it cannot be read") from None
    if len(text) > MAX_FILE:
        raise _damaged(path, f"it has more than {MAX_FILE} bytes")
    try:
        rows = json.loads(text)["boxes"]
        found = [Box(check_name(row["name"]), row["url"], row.get("clisup", "clisup")) for row in rows]
        for box in found:
            parse_address(box.url)
            box.clisup.encode()
    except UsageError as error:
        raise _damaged(path, error.message) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(path, 'it is not of the form {"boxes": [{"name": ..., "url": ...}]}') from None
    if len(found) > MAX_BOXES:
        raise _damaged(path, f"it has more than {MAX_BOXES} boxes")
    return {box.name: box for box in found}


def box_named(name: str, env: Mapping[str, str]) -> Box:
    """Return the box. Raises `UsageError(box_unknown)`, which lists the known names."""
    known = boxes(env)
    if (box := known.get(name)) is not None:
        return box
    if (own := joined(env)) is not None and own.name == name:
        return Box(name, "unix://" + quote(own_socket(env, os.getuid())))
    names = ", ".join([HERE, *known])
    raise UsageError(
        f"no box is called {name[:64]!r}: known are {names}",
        kind="box_unknown",
        hint="clisup fleet add NAME ssh://HOST" if own is None else "see the members: clisup status --fleet",
        box=name[:64],
    )


def add_box(box: Box, env: Mapping[str, str]) -> None:
    """Add a box. Raises `UsageError(usage)` for a taken name, and for more than `MAX_BOXES`."""
    with _locked(env):
        known = listed(env)
        if box.name in known:
            raise UsageError(
                f"cannot add box {box.name}, because there is one of this name: {known[box.name].url}",
                kind="usage",
                hint=f"clisup fleet remove {box.name}",
            )
        if len(known) >= MAX_BOXES:
            raise UsageError(
                f"cannot add box {box.name}, because {MAX_BOXES} are the most",
                kind="usage",
                hint="clisup fleet remove NAME",
            )
        _write(env, [*known.values(), box])


def remove_box(name: str, env: Mapping[str, str]) -> None:
    """Remove a box. Raises `UsageError(box_unknown)`."""
    with _locked(env):
        if name not in listed(env):
            box_named(name, env)
            raise UsageError(f"{name} is a member of the fleet, and no box of the list", kind="usage")
        _write(env, [box for box in listed(env).values() if box.name != name])


def _write(env: Mapping[str, str], listed: list[Box]) -> None:
    rows = [{"name": box.name, "url": box.url, "clisup": box.clisup} for box in listed]
    write_atomic(list_file(env), json.dumps({"boxes": rows}, indent=1).encode() + b"\n")


@contextmanager
def _locked(env: Mapping[str, str]) -> Iterator[None]:
    """Let one command at a time change the list."""
    directory = os.path.dirname(list_file(env))
    make_private_dir(directory)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _damaged(path: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"cannot use the list of boxes {path}, because {reason}",
        hint="mend or remove the file, and add the boxes again: clisup fleet add",
    )

"""Files of a CLI, and a reader of the files in bounded pieces."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from clisup.errors import WorldError
from clisup.host import clock

MAX_FILES = 20_000
MAX_BYTES = 2 * 1024 * 1024 * 1024
MAX_S = 120.0
PIECE_BYTES = 16 * 1024 * 1024
_SOURCES = (".js", ".mjs", ".cjs", ".py")
_INTERPRETER = re.compile(r"(?:node|bun|deno|python)[0-9.]*")
_ABOVE = 4  # directories above a script in which its package.json is searched


class Read(NamedTuple):
    """Amount read, and whether the read was complete: `MAX_FILES`, `MAX_BYTES` and `MAX_S` end a read."""

    files: int
    bytes: int
    complete: bool


def program_files(argv: Sequence[str]) -> list[str]:
    """Return the files behind a command's argv prefix: one file for a native program, the whole package for a script.

    An interpreter is left out if a script follows. Raises `WorldError(backend_unavailable)` without a file to read.
    """
    real = [os.path.realpath(part) for part in argv if os.sep in part and os.path.isfile(part)]
    own = [path for path in real if not _INTERPRETER.fullmatch(os.path.basename(path))] or real[:1]
    found: dict[str, None] = {}
    for path in own:
        found |= dict.fromkeys([path] if _is_native(path) else _package(path))
    if not found:
        raise WorldError(
            f"cannot look into {' '.join(argv)}, because it names no file",
            kind="backend_unavailable",
            hint="set the backend's command to the CLI's own file",
        )
    return list(found)


def read_pieces(
    files: Sequence[str], take: Callable[[bytes], None], *, overlap: int, progress: Callable[[int, int], None]
) -> Read:
    """Pass every file to `take`, in pieces that overlap. `progress` gets the bytes read and the bytes to read."""
    sizes = [_size(path) for path in files[:MAX_FILES]]
    total = min(sum(sizes), MAX_BYTES)
    until = clock.monotonic() + MAX_S
    done = 0
    for number, path in enumerate(files[:MAX_FILES]):
        for piece, fresh in _pieces(path, overlap):
            if done >= MAX_BYTES or clock.monotonic() > until:
                return Read(number, done, complete=False)
            take(piece)
            done += fresh
            progress(done, total)
    return Read(len(sizes), done, complete=len(files) <= MAX_FILES)


def _pieces(path: str, overlap: int) -> Iterator[tuple[bytes, int]]:
    """Yield pieces, each with the number of its new bytes.

    An unreadable file yields nothing: the CLI could not read it either.
    """
    try:
        with open(path, "rb") as file:
            rest = b""
            while data := file.read(PIECE_BYTES):
                yield rest + data, len(data)
                rest = data[-overlap:]
    except OSError:
        return


def _package(script: str) -> list[str]:
    """Return the sources beside and below a script: its npm package, or the folder of a Python package's `__main__`."""
    root = os.path.dirname(script)
    if os.path.basename(script) != "__main__.py":
        above = [os.path.normpath(os.path.join(root, *[".."] * steps)) for steps in range(_ABOVE)]
        found = next((folder for folder in above if os.path.isfile(os.path.join(folder, "package.json"))), None)
        if found is None:
            return [script]
        root = found
    paths = [script]
    for folder, folders, names in os.walk(root):
        folders.sort()
        paths += [os.path.join(folder, name) for name in sorted(names) if name.endswith(_SOURCES)]
        if len(paths) > MAX_FILES:
            break
    return paths


def _is_native(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0

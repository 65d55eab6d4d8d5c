"""Reader of a whole journal outside its daemon: nothing is opened for writing, cut or repaired."""

from __future__ import annotations

import os
from collections.abc import Iterator

from clisup.host.files import storage_error
from clisup.model.journal import DamagedLine, Record, read_lines
from clisup.store.journal_store import check_version

__all__ = ["stored_records"]


def stored_records(directory: str) -> Iterator[Record]:
    """Yield every record of every segment, snapshots too, from the oldest on.

    Damaged lines and a torn tail are skipped.

    Raises `WorldError(storage_failed)` if a segment cannot be read, and `UsageError(unsupported)` for a segment of a
    later format.
    """
    try:
        names = (name.removesuffix(".jsonl") for name in os.listdir(directory) if name.endswith(".jsonl"))
        segments = sorted((int(name), name) for name in names if name.isdecimal())
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("read", directory, error) from None
    for _, name in segments:
        path = os.path.join(directory, f"{name}.jsonl")
        try:
            yield from _segment(path)
        except FileNotFoundError:
            continue  # retention was faster
        except OSError as error:
            raise storage_error("read the journal", path, error) from None


def _segment(path: str) -> Iterator[Record]:
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if number == 0:
                check_version(path, line)
            try:
                yield from read_lines(line)
            except DamagedLine:
                continue

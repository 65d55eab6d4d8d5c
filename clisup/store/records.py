"""Typed records in files of the state directory. A process of a CLI can write these files, so nothing in them is trusted."""

from __future__ import annotations

import json
from typing import NoReturn, TypeVar

import msgspec

from clisup.host.files import RECORD_LIMIT, OddFileError, read_file, storage_error
from clisup.host.log import event_logger

__all__ = ["decode_record", "read_record"]

T = TypeVar("T")
_log = event_logger()


def read_record(path: str, kind: type[T], limit: int = RECORD_LIMIT) -> T | None:
    """Return the record in `path`, or None for a missing file and for a file without such a record.

    The log names an ignored file. Raises `WorldError(storage_failed)` if the disk refuses.
    """
    try:
        data = read_file(path, limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OddFileError as error:
        _log.warning("file ignored", path=path, why=error.strerror)
        return None
    except OSError as error:
        raise storage_error("read", path, error) from None
    try:
        return decode_record(data, kind)
    except (ValueError, RecursionError, OverflowError) as error:  # a crash of the machine leaves an empty file
        why = "it holds no such record" if isinstance(error, msgspec.ValidationError) else "it is no JSON"
        _log.warning("file ignored", path=path, why=why)
        return None


def decode_record(data: bytes, kind: type[T]) -> T:
    """Return the record in `data`. Raises `ValueError`, `RecursionError`, `OverflowError` for anything else."""
    return msgspec.convert(json.loads(data, parse_constant=_refuse), kind)


def _refuse(word: str) -> NoReturn:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(word)

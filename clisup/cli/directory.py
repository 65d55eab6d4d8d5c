"""Where a command is: a working directory may be removed while a shell stands in it."""

from __future__ import annotations

import os

from clisup.cli.failure import usage

__all__ = ["absolute"]


def absolute(path: str, *, otherwise: str) -> str:
    """The path as one that begins with `/`. Raises `UsageError` where that takes a working directory that is gone.

    `otherwise` is what the caller may do instead of going elsewhere.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise usage(
            "cannot tell the working directory, because it is gone", hint=f"cd elsewhere, or {otherwise}"
        ) from None

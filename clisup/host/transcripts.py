"""Does the CLI itself still know a session? Looks for its transcript; never reads or writes one."""

from __future__ import annotations

import glob

__all__ = ["transcript_exists"]


def transcript_exists(pattern: str | None) -> bool:
    """Is there a file that matches the adapter's pattern? False where the adapter has none."""
    return pattern is not None and next(glob.iglob(pattern), None) is not None

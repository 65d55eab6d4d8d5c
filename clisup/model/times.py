"""Times in the format of events and errors. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(seconds: float | None, *, timespec: str = "auto") -> str | None:
    """Return seconds since the epoch as RFC 3339 in UTC. Return None for None, or for a time outside the calendar."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None

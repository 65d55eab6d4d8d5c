"""`clisup version`."""

from __future__ import annotations

__all__ = ["show_version"]


def show_version() -> int:
    """Print the version of the command; the daemon's own is in `clisup status`."""
    from clisup import __version__

    print(f"clisup {__version__}")
    return 0

"""structlog without rich: it takes rich where it finds it, for tracebacks in colours, and with it 130 ms and 9 MB of a start.

The daemon's tracebacks are plain (`clisup.host.log`), so for the daemon there is no rich, whoever else has installed it.
"""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["import_structlog"]

_NOT_FOUND = ("rich", "better_exceptions")


def import_structlog() -> None:
    """Import it, before anybody else does. What is in the process already stays as it is."""
    hidden = [name for name in _NOT_FOUND if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # how the import system says: there is none
    try:
        import_module("structlog")
    finally:
        for name in hidden:
            del sys.modules[name]

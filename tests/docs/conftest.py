"""The harness of tests/daemon, for the programs of the pages that need a daemon that can be restarted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

__all__ = ["serve"]

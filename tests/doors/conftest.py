"""Fixtures: real daemons for the clients of the doors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from serving import serve

__all__ = ["serve"]

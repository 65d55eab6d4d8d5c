"""Fixtures: real daemons for the editors of these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "daemon"))
from serving import serve

__all__ = ["serve"]

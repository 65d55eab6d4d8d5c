"""Seconds between two times of a journal."""

from __future__ import annotations

from datetime import datetime

__all__ = ["lasted"]


def lasted(began: str | None, ended: str, paused_s: float) -> float:
    """Seconds between two times of the journal, without those in which the machine was suspended. At least 0."""
    try:
        gone = (datetime.fromisoformat(ended) - datetime.fromisoformat(began or ended)).total_seconds()
    except (TypeError, ValueError):  # of a journal that somebody wrote by hand
        return 0.0
    return max(0.0, gone - paused_s)

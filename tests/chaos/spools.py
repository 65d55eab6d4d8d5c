"""What the CLIs of one session have said, as it lies in the spools of its runs."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Spools"]


class Spools:
    """The runs of the session whose directory this is."""

    def __init__(self, session_dir: Path) -> None:
        self._runs = session_dir / "runs"
        self._before: tuple[str, int] = ("", 0)

    @property
    def last(self) -> Path | None:
        """The directory of the last run."""
        return max(self._runs.glob("*"), key=lambda path: int(path.name), default=None)

    def mark(self) -> None:
        """What is said from now on is of turns to come: a live process has had others before."""
        self._before = (run.name, len(_read(run))) if (run := self.last) is not None else ("", 0)

    def said(self, run: Path) -> bytes:
        """What this run has said since the mark."""
        name, size = self._before
        return _read(run)[size if name == run.name else 0 :]


def _read(run: Path) -> bytes:
    try:
        return (run / "out.spool").read_bytes()
    except OSError:
        return b""

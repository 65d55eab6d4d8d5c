"""Status of the daemon, or of its files where no daemon answers. Light: see `clisup.cli.main`."""

from __future__ import annotations

from clisup.cli.views.terminal import plain
from clisup.client.raw import RawClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["absent_daemon", "ask", "told_absent"]

_ABSENT = ("not_running", "unreachable")


def ask() -> dict[str, Any]:
    """What the daemon says; where none answers, what its files say."""
    try:
        with RawClient.connect(name="clisup-status") as client:
            status: dict[str, Any] = client.call("daemon/status")
            return status
    except Exception as error:
        if getattr(error, "kind", None) != "daemon_not_running":
            raise
        from clisup.cli.status.stored import status_from_disk

        return status_from_disk(error)


def absent_daemon(status: dict[str, Any]) -> bool:
    """Is it from the files alone?"""
    return status["daemon"]["state"] in _ABSENT


def told_absent(status: dict[str, Any]) -> str:
    """Where what is shown comes from, in one line."""
    word = str(status["daemon"]["state"]).replace("_", " ")
    return f"the daemon is {word}; from disk: {plain(status['daemon']['state_dir'])}"

"""`clisup status --watch`: the status again and again, across restarts of the daemon. Light: see `clisup.cli.main`."""

from __future__ import annotations

import os
import sys
import time

from clisup.cli.status.asking import absent_daemon, ask, told_absent
from clisup.cli.status.page import render
from clisup.cli.views.terminal import Ink, cut, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clisup.cli.status.arguments import StatusArguments

__all__ = ["SHORTEST_S", "watch"]

SHORTEST_S = 0.1
LONGEST_S = 86_400.0
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\033[H", "\033[K", "\033[J"


def watch(wanted: StatusArguments) -> int:
    """Print the status every so many seconds until Ctrl-C, which is the way to end it: exit code 0.

    A terminal is painted anew; a pipe gets a block with the time for each look, with `--json` one line. Where the daemon goes
    away, what its files say is shown until it is back.
    """
    pause = _pause(wanted.watch)
    tty = sys.stdout.isatty() and not wanted.json
    if tty:
        sys.stdout.write(_HOME + _TO_SCREEN_END)
    try:
        while True:
            text = _look(wanted)
            sys.stdout.write(_painted(text) if tty else text)
            sys.stdout.flush()
            time.sleep(pause)
    except KeyboardInterrupt:
        if tty:
            print()
        return 0


def _pause(seconds: float | None) -> float:
    if seconds is not None and SHORTEST_S <= seconds <= LONGEST_S:
        return seconds
    from clisup.errors import UsageError

    raise UsageError(
        f"cannot look every {seconds:g} s, because {SHORTEST_S:g} to {LONGEST_S:g} s are possible",
        kind="usage",
        hint="try: clisup status --watch 2",
    )


def _look(wanted: StatusArguments) -> str:
    """One block: a line with the time (not in JSON), then the status, or why there is none."""
    head = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  every {wanted.watch:g} s"
    try:
        status = _asked(wanted)
    except Exception as error:
        if getattr(error, "kind", None) not in ("overloaded", "shutting_down", "session_not_found"):
            raise
        return "" if wanted.json else f"{head}\n\n{error}\n\n"
    text = render(status, wanted, Ink(), width_of(sys.stdout))
    if wanted.json:
        return text
    return f"{head}{f'; {told_absent(status)}' if absent_daemon(status) else ''}\n\n{text}\n"


def _asked(wanted: StatusArguments) -> dict[str, Any]:
    """The status, with the one session alone where one was named."""
    status = ask()
    if wanted.session is not None:
        from clisup.cli.lookup import pick

        named = pick(wanted.session, lambda: status["sessions"])
        status["sessions"] = [s for s in status["sessions"] if s["session_id"] == named]
    return status


def _painted(text: str) -> str:
    """Over what was there: each line is cleared behind its end, and all below the last one. No more lines than there are."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        lines, columns = max(size.lines - 1, 1), size.columns or None
    except (OSError, ValueError):
        lines, columns = 24, None
    shown = text.rstrip("\n").split("\n")
    if len(shown) > lines:
        shown = [*shown[: lines - 1], f"... {len(shown) - lines + 1} more lines; choose with -o, or use a pipe"]
    body = "".join(f"{line}{_TO_LINE_END}\n" for line in cut("\n".join(shown), columns).split("\n"))
    return _HOME + body + _TO_SCREEN_END

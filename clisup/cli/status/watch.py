"""`clisup status --watch`: the status again and again, across restarts of the daemon."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from clisup.cli.lookup import pick
from clisup.cli.status.page import StatusOptions, absence, ask, is_absent, render
from clisup.cli.views.terminal import Ink, cut, width_of
from clisup.errors import ClisupError

__all__ = ["LONGEST_S", "SHORTEST_S", "watch_status"]

SHORTEST_S = 0.1
LONGEST_S = 86_400.0
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\033[H", "\033[K", "\033[J"


def watch_status(options: StatusOptions, session: str | None, pause: float) -> int:
    """Print the status every `pause` seconds until Ctrl-C. Return 0.

    A terminal is redrawn. A pipe gets a block with the time for each status, or with `--json` one line. While the daemon
    is away, the status of its files is shown.
    """
    tty = sys.stdout.isatty() and not options.json
    if tty:
        sys.stdout.write(_HOME + _TO_SCREEN_END)
    try:
        while True:
            text = _block(options, session, pause)
            sys.stdout.write(_screen(text) if tty else text)
            sys.stdout.flush()
            time.sleep(pause)
    except KeyboardInterrupt:
        if tty:
            print()
        return 0


def _block(options: StatusOptions, session: str | None, pause: float) -> str:
    """Return a line with the time, except for JSON, then the status or the error."""
    head = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  every {pause:g} s"
    try:
        status = _status_of(session)
    except ClisupError as error:
        if error.kind not in ("overloaded", "shutting_down", "session_not_found"):
            raise
        return "" if options.json else f"{head}\n\n{error}\n\n"
    text = render(status, options, Ink(), width_of(sys.stdout))
    if options.json:
        return text
    return f"{head}{f'; {absence(status)}' if is_absent(status) else ''}\n\n{text}\n"


def _status_of(session: str | None) -> dict[str, Any]:
    """Return the status; with `session`, the status of that session alone."""
    status = ask()
    if session is not None:
        named = pick(session, lambda: [s["session_id"] for s in status["sessions"]])
        status["sessions"] = [s for s in status["sessions"] if s["session_id"] == named]
    return status


def _screen(text: str) -> str:
    """Return the text drawn over the screen before: each line clears its rest. Lines beyond the screen are left out."""
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

"""`clisup status`: what the daemon, its backends and its sessions are doing, in one screen. Light: see `clisup.cli.main`.

Where no daemon runs, what its files say is shown (`clisup.cli.status.stored`), and the exit code is 3.
"""

from __future__ import annotations

import sys

from clisup.cli.status.asking import absent_daemon, ask, told_absent
from clisup.cli.status.columns import chosen
from clisup.cli.status.page import render
from clisup.cli.views.terminal import Ink, width_of
from clisup.client.raw import RawClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clisup.cli.status.arguments import StatusArguments

__all__ = ["show_status"]

EXIT_NOT_RUNNING = 3  # as `clisup.errors` has it, which is slow to load


def show_status(wanted: StatusArguments) -> int:
    """Print the status of the daemon, or of one session, or why that one's turn is still alive. Gives the exit code."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a C locale has no bullet
    if wanted.columns is not None:
        chosen(wanted.columns)  # before anything is asked
    if wanted.watch is not None:
        from clisup.cli.status.watch import watch

        return watch(wanted)
    if wanted.session is not None and wanted.why:
        with RawClient.connect(name="clisup-status") as client:
            from clisup.cli.status.why import show_why

            return show_why(client, wanted.session, wanted.json)
    if wanted.session is not None:
        from clisup.cli.status.session import show_session

        return show_session(wanted)
    status = ask()
    if absent_daemon(status) and (wanted.quiet or wanted.columns is not None):
        print(f"clisup: {told_absent(status)}", file=sys.stderr)
    print(render(status, wanted, Ink(), width_of(sys.stdout)), end="")
    return EXIT_NOT_RUNNING if absent_daemon(status) else 0

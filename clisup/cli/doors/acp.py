"""`clisup acp`: an agent of the Agent Client Protocol on stdio, for editors."""

from __future__ import annotations

import sys

import click

from clisup.cli.daemon_start import ensure_daemon, no_start_option, report
from clisup.cli.options import complete_backend, root_directory, utf8

__all__ = ["acp"]


@click.command("acp")
@click.option("-b", "--backend", metavar="BACKEND", shell_complete=complete_backend, callback=utf8("name the backend"),
              help="The backend of new sessions; see clisup backends.")  # fmt: skip
@click.option("--cwd-root", metavar="DIRECTORY", help="Refuse sessions in directories outside of this one.")
@click.option(
    "--log-file", metavar="FILE", help="Log methods and errors here. The log has no texts of prompts and answers."
)
@no_start_option
def acp(backend: str | None, cwd_root: str | None, log_file: str | None, no_start: bool) -> int:
    """Serve an editor on stdin and stdout, as an agent of the Agent Client Protocol.

    Editors start this command. Its sessions belong to the daemon: they go on when the editor closes, and other editors,
    `clisup attach` and `clisup approvals` see the same session. docs/how-to/editors.md has the settings of editors.

    \b
    Example:
      clisup acp -b claude
      ssh box clisup acp                    an editor here, sessions on another machine
    """
    from clisup.doors.acp.door import DoorOptions
    from clisup.doors.acp.main import serve_editor

    if sys.stdin.isatty():
        report("this command is for editors, which speak the Agent Client Protocol on stdin; Ctrl-D ends it")
    root = None if cwd_root is None else root_directory(cwd_root, "--cwd-root")
    return serve_editor(DoorOptions(backend, root), lambda: ensure_daemon("clisup-acp", no_start=no_start), log_file)

"""Last lines of the daemon in systemd's journal, for the case that the daemon is down and cannot be asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from clisup.ops.journald_entry import IDENTIFIER

__all__ = ["ASK_LIMIT_S", "journal_tail"]

ASK_LIMIT_S = 10.0
_LINES = "500"
_PASSED = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


def journal_tail(env: Mapping[str, str]) -> str:
    """Return up to 500 lines, oldest first, of all daemons whose lines this user may read.

    Return "" without a journal.
    """
    journalctl = shutil.which("journalctl", path=env.get("PATH", os.defpath))
    if journalctl is None:
        return ""
    match = f"SYSLOG_IDENTIFIER={IDENTIFIER}"
    words = [journalctl, "--merge", "--no-pager", "--quiet", f"--lines={_LINES}", "--output=short-iso-precise", match]
    passed = {name: env[name] for name in _PASSED if name in env} | {"LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, env=passed, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_LIMIT_S, check=False, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")

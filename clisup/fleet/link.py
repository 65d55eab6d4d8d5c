"""Way to a box: the path of a socket on this machine, or the user's own ssh to another machine.

ssh gets one end of a socket pair as stdin and stdout. So no port and no socket file is open, and this process copies nothing.
ssh ends by itself when the client closes its end, or is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import NamedTuple

from clisup.errors import ClisupError, box_away
from clisup.fleet.book import box_named
from clisup.fleet.boxes import Box, said, ssh_words

__all__ = ["SshLink", "Way", "way_to"]

SAID_LIMIT = 8192
"""Bytes of ssh's stderr that are read. The pipe bounds the rest."""

END_S = 0.5
"""Seconds to wait for the end of an ssh whose connection has ended, for its last words."""

_NO_COMMAND = 127
_leaving: list[subprocess.Popen[bytes]] = []
"""Processes of closed links that may still send, until they are reaped."""


class Way(NamedTuple):
    """Way to a box: the path of its socket on this machine, or an open link."""

    socket: str
    link: SshLink | None


def way_to(name: str) -> Way:
    """Return the way to a box, and start ssh for another machine. Raises `UsageError(box_unknown)` and `WorldError(box_away)`."""
    box = box_named(name, os.environ)
    return Way("", SshLink(box)) if box.address.host else Way(box.address.socket, None)


class SshLink:
    """ssh to a box. `socket` is the client's end."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A session of its own: Ctrl-C of the terminal is for the command, which still needs the connection.
            self._process = subprocess.Popen(
                ssh_words(box.address, box.clisup), stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.socket.close()
            missing = isinstance(error, FileNotFoundError)
            reason = "ssh is not on the PATH" if missing else f"ssh cannot start: {error.strerror}"
            raise box_away(box.name, reason, hint="install the OpenSSH client") from None
        finally:
            theirs.close()
        assert self._process.stderr is not None
        self._stderr, self._said = self._process.stderr, b""
        os.set_blocking(self._stderr.fileno(), False)

    def reason(self, otherwise: str) -> str:
        """Return why the connection ended: the last words of ssh, or `otherwise`."""
        if self._stderr.closed:  # by this side
            return otherwise
        until = time.monotonic() + END_S
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        try:
            self._said += os.read(self._stderr.fileno(), SAID_LIMIT - len(self._said))
        except (OSError, ValueError):  # nothing more was said, or another thread has closed the link
            pass
        if words := said(self._said):
            return f"ssh says: {words}"
        code = self._process.poll()
        return otherwise if code is None else f"ssh ended with exit code {code} and no message"

    def failed(self, error: ClisupError) -> ClisupError:
        """End ssh, and return the error for a box that did not introduce itself because of `error`."""
        if error.kind == "box_away":
            why = self.reason(str(error.data.get("reason") or error.message))
            error = box_away(self._box.name, why, hint=self._hint(why))
        self.end()
        return error

    def end(self) -> None:
        """End ssh at once, and close the client's end."""
        self._process.kill()
        self._process.wait()
        self.close()

    def close(self) -> None:
        """Close the client's end. ssh sends what it has, and ends."""
        self.socket.close()
        self._stderr.close()
        _leaving[:] = [process for process in (*_leaving, self._process) if process.poll() is None]

    def _hint(self, why: str) -> str:
        box = self._box
        if self._process.poll() == _NO_COMMAND:
            return f"clisup is not on the PATH of ssh there: clisup fleet remove {box.name}, then add it with --clisup PATH"
        if "--stdio" in why:
            return f"the clisup of {box.name} is too old for this: upgrade it there"
        return f"try it by hand: ssh {box.address.host} {box.clisup} status"

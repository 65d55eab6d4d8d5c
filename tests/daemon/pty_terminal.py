"""A pseudo-terminal with a command of clisup in it, as a person would sit before it."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
import sys
import termios
import time

from harness import Harness
from wire import PATIENCE_S

__all__ = ["Terminal"]


class Terminal:
    """A command of clisup as the foreground process of a new terminal of `size` (columns, lines)."""

    def __init__(self, daemon: Harness, *args: str, size: tuple[int, int] = (80, 24)) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, size[::-1])
        argv = [sys.executable, "-m", "clisup", *args]
        env = {**daemon.env, "CLISUP_SOCKET": daemon.socket, "TERM": "xterm"}
        # A session of its own whose first terminal this is, so that it is the foreground.
        starter = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", starter, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            start_new_session=True,
        )
        os.close(theirs)
        self.ours, self.text = ours, ""
        self._decode = codecs.getincrementaldecoder("utf-8")()

    def until(self, what: str, times: int = 1) -> None:
        """Read until it has been said so many times in all."""
        end = time.monotonic() + PATIENCE_S
        while self.text.count(what) < times:
            assert time.monotonic() < end, f"no {what!r} in {self.text!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.text += self._decode.decode(os.read(self.ours, 65536))
                except OSError:  # the other end is closed
                    assert self.text.count(what) >= times, f"no {what!r} in {self.text!r}"

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)

"""Processes that nobody may touch: `python -I -S bystander.py watch|churn HITS`. They leave with 0 at the EOF of stdin.

`watch` notes every signal that it gets in the file HITS. `churn` starts short-lived children all the time and notes each
that did not end as it wanted: their pids are the ones that a killer's old list would name again.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

EXIT_CODE, CHILD_S = 7, 0.02
EXPECTED = (signal.SIGCHLD, signal.SIGWINCH)


def note(text: str) -> None:
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{os.getpid()} {text}\n".encode())
    os.close(fd)


def watch() -> None:
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33, *EXPECTED):
            signal.signal(number, lambda got, _frame: note(f"got signal {got}"))
    while os.read(0, 1):
        pass


def churn() -> None:
    while not select.select([0], [], [], 0)[0]:
        pid = os.fork()
        if pid == 0:
            time.sleep(CHILD_S)
            os._exit(EXIT_CODE)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != EXIT_CODE:
            note(f"child {pid} ended with {status}")


if __name__ == "__main__":
    os.write(1, b"up\n")
    {"watch": watch, "churn": churn}[sys.argv[1]]()

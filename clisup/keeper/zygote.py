"""Keeper zygote: a process with the keeper's code loaded, which forks keepers."""

from __future__ import annotations

import errno
import os
import signal
import socket

from clisup.keeper.system import PR_SET_DUMPABLE, prctl, set_process_name


def fork_keepers() -> bool:
    """Fork a keeper for each packet on stdin, until the other end is closed. Return True in each keeper, then False.

    A packet carries the keeper's stdin and stdout. The answer is the keeper's pid, or minus the errno of a failed fork.
    The zygote's first packet reports the start. The zygote reads no spec, so no keeper sees the spec of another keeper.
    """
    set_process_name("clisup-zygote")
    prctl(PR_SET_DUMPABLE, 0)  # a tracer of the zygote could read the specs of all later keepers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps keepers
    link = socket.socket(fileno=0)
    try:
        link.send(b"up")
        while fds := _receive_pipes(link):
            try:
                pid = os.fork()
            except OSError as error:
                pid = -(error.errno or errno.EAGAIN)
            if pid == 0:
                link.detach()
                _become_keeper(fds)
                return True
            for fd in fds:
                os.close(fd)
            link.send(b"%d" % pid)
    except OSError:
        pass  # the daemon is gone
    return False


def _receive_pipes(link: socket.socket) -> list[int]:
    """Return the two descriptors of the next packet, or an empty list at the end and for any other packet."""
    _, fds, _, _ = socket.recv_fds(link, 1, 2)
    return fds if len(fds) == 2 else []


def _become_keeper(fds: list[int]) -> None:
    """Turn this process into a keeper as if started alone. `reset_process` does the rest."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

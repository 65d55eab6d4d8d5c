"""Keeper zygote: a process with the keeper's code loaded, which forks keepers and the guards of helper programs."""

from __future__ import annotations

import errno
import os
import signal
import socket

from clisup.keeper.system import PR_SET_DUMPABLE, prctl, set_process_name

KEEPER_PIPES = 2


def fork_keepers() -> str:
    """Fork a process for each packet on stdin, until the other end is closed.

    Return `keeper` or `helper` in each fork, and then "". A packet carries the stdin and stdout of a keeper, or the stdin
    of a helper's guard. The answer is the fork's pid, or minus the errno of a failed fork. The zygote's first packet
    reports the start. The zygote reads no spec, so no keeper sees the spec of another keeper.
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
                return "keeper" if len(fds) == KEEPER_PIPES else "helper"
            for fd in fds:
                os.close(fd)
            link.send(b"%d" % pid)
    except OSError:
        pass  # the daemon is gone
    return ""


def _receive_pipes(link: socket.socket) -> list[int]:
    """Return the descriptors of the next packet, or an empty list at the end."""
    _, fds, _, _ = socket.recv_fds(link, 1, KEEPER_PIPES)
    return fds


def _become_keeper(fds: list[int]) -> None:
    """Turn this process into a keeper as if started alone. `reset_process` does the rest."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

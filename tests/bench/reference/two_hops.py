"""The least that clisup's way costs in Python: a process that keeps what comes on pipes in files, and one that passes it on.

    python -I two_hops.py DIRECTORY FD...        stdout is the socket

The first is a `poll` loop as a keeper has one, but one for all pipes; the second a task of trio. Between them are a word for each
piece and the file. Nobody looks at a byte.
"""

import os
import select
import socket
import sys
from pathlib import Path

import trio

BLOCK = 64 * 1024


def keep(pipes: list[int], spools: list[int], words: socket.socket) -> None:
    """The first hop."""
    poll, numbers = select.poll(), {fd: number for number, fd in enumerate(pipes)}
    for fd in pipes:
        poll.register(fd, select.POLLIN)
    while numbers:
        for fd, _ in poll.poll():
            if data := os.read(fd, BLOCK):
                os.write(spools[numbers[fd]], data)
                words.sendall(b"%d\n" % numbers[fd])
            else:
                poll.unregister(fd)
                del numbers[fd]


async def pass_on(words: socket.socket, spools: list[int]) -> None:
    """The second."""
    out, places = trio.socket.fromfd(1, socket.AF_UNIX, socket.SOCK_STREAM), [0] * len(spools)
    half = b""
    while said := await trio.socket.from_stdlib_socket(words).recv(BLOCK):
        *lines, half = (half + said).split(b"\n")
        for number in {int(line) for line in lines}:
            while data := os.pread(spools[number], BLOCK, places[number]):
                places[number] += len(data)
                await trio.SocketStream(out).send_all(data)


def main() -> None:
    directory, pipes = Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    spools = [os.open(directory / str(fd), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) for fd in pipes]
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        keep(pipes, spools, theirs)
        os._exit(0)
    theirs.close()
    for fd in pipes:
        os.close(fd)
    (directory / "ready").touch()
    trio.run(pass_on, ours, spools)
    os.wait()


main()

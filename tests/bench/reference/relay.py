"""The least that a relay in Python can do: what comes on pipes goes to a file and to a socket, and nobody looks at it.

    python -I -S relay.py FILE FD...        stdout is the socket

It ends when all pipes have ended, and says on stderr how many seconds of processor time it took.
"""

import os
import select
import sys
import time

BLOCK = 64 * 1024


def main() -> None:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    poll = select.epoll()
    left = 0
    for fd in map(int, sys.argv[2:]):
        poll.register(fd, select.EPOLLIN)
        left += 1
    while left:
        for fd, _ in poll.poll():
            if data := os.read(fd, BLOCK):
                _write(file, data)
                _write(1, data)
            else:
                poll.unregister(fd)
                os.close(fd)
                left -= 1
    print(time.process_time(), file=sys.stderr)


def _write(fd: int, data: bytes) -> None:
    done = os.write(fd, data)
    while done < len(data):
        done += os.write(fd, data[done:])


main()

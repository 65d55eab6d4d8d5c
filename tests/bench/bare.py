"""The fake CLIs without clisup: their stdout on pipes of ours, for the references that read them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.place import end

__all__ = ["spoken"]


@contextmanager
def spoken(fake: Path, prompt: str, count: int, *, into_one: bool = False) -> Iterator[list[int]]:
    """So many fake CLIs that stand at the gate; the read ends of their stdouts, or the one of them all."""
    processes: list[subprocess.Popen[bytes]] = []
    reading: list[int] = []
    shared = os.pipe() if into_one else None
    try:
        for _ in range(count):
            read, write = shared or os.pipe()
            if not shared or not reading:
                reading.append(read)
            processes.append(subprocess.Popen([str(fake)], stdin=subprocess.PIPE, stdout=write))
            if not shared:
                os.close(write)
            stdin = processes[-1].stdin
            assert stdin is not None
            stdin.write(prompt.encode())
            stdin.close()
        if shared:
            os.close(shared[1])
            shared = None
        yield reading
    finally:
        if shared:
            os.close(shared[1])
        end(processes)
        for fd in reading:
            os.close(fd)

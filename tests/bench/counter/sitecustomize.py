"""Count the Python calls and the syncs of a daemon, in a file that `tests.bench.counts` reads and has made."""

from __future__ import annotations

import os
import sys

if "serve" in sys.orig_argv:
    import _thread
    import mmap
    from itertools import count
    from struct import Struct

    with open(os.path.join(sys.prefix, "counts"), "r+b") as file:
        shared = mmap.mmap(file.fileno(), 16)
    number, calls, syncs = Struct("<Q"), count(1), count(1)
    put, start_thread = number.pack_into, _thread.start_new_thread

    def note(_frame: object, event: str, _argument: object) -> None:
        if event == "call":
            put(shared, 0, next(calls))

    def counted(sync):  # type: ignore[no-untyped-def]
        def run(fd):  # type: ignore[no-untyped-def]
            put(shared, 8, next(syncs))
            return sync(fd)

        return run

    def start_counted(function, args, kwargs=None):  # type: ignore[no-untyped-def]
        def run(*args, **kwargs):  # type: ignore[no-untyped-def]
            sys.setprofile(note)
            function(*args, **kwargs)

        return start_thread(run, args, kwargs or {})

    os.fsync, os.fdatasync = counted(os.fsync), counted(os.fdatasync)  # worker threads call these: no profile sees them
    _thread.start_new_thread = start_counted  # type: ignore[assignment]
    os.register_at_fork(after_in_child=lambda: sys.setprofile(None))
    sys.setprofile(note)

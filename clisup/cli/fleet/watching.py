"""`--watch` over all boxes: one thread for each, which connects again after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from clisup.cli.fleet.asking import everywhere, path_of, print_failure
from clisup.errors import ClisupError
from clisup.locations import HERE

__all__ = ["watch_everywhere"]

AGAIN_S = 5.0
"""Seconds before a box that failed is asked again."""


def watch_everywhere(watch: Callable[[str, str], None]) -> int:
    """Call `watch` with the name and the client's path of each box, until Ctrl-C. A box that fails has one line.

    `watch` runs in a thread of the box, and raises `ClisupError` when the box is gone.
    """
    threads = [threading.Thread(target=_keep, args=(box, watch), daemon=True) for box in everywhere()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def _keep(box: str, watch: Callable[[str, str], None]) -> None:
    last = ""
    while True:
        try:
            watch(box, path_of(box))
        except ClisupError as error:
            absent = box == HERE and error.kind == "daemon_not_running"
            if error.kind != last and not absent:
                print_failure(box, error)
            last = error.kind
        time.sleep(AGAIN_S)

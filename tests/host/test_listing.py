"""The list of processes below a keeper."""

from __future__ import annotations

import os
import subprocess
from itertools import count

from clisup.host.process.listing import ARGV_BYTES, processes_below


def test_the_list_has_command_lines_parents_and_memory() -> None:
    long = "x" * (2 * ARGV_BYTES)
    script = "sleep 3574 & echo ready; read _; kill $!"
    with subprocess.Popen(["sh", "-c", script, "a\nb", long], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdin is not None
        shell.stdout.readline()
        for _ in count():  # the child of the shell is a copy of it until its exec
            found = {one.pid: one for one in processes_below(os.getpid())}
            children = [one for one in found.values() if one.parent == shell.pid and one.argv == ["sleep", "3574"]]
            if children:
                break
        parent = found[shell.pid]
        assert parent.argv[:4] == ["sh", "-c", script, "a\nb"] and sum(map(len, parent.argv)) <= ARGV_BYTES
        assert parent.start_time <= children[0].start_time and parent.rss_bytes > 0 and children[0].name == "sleep"
        shell.communicate(b"\n")
    assert shell.pid not in {one.pid for one in processes_below(os.getpid())}

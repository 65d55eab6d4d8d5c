"""Run by hand: `python tests/keeper/measure.py`. Prints what a keeper costs on this machine, started by itself and forked."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from clisup.host.process.keepers import KEEPER_FILE

STAMP = ["/bin/date", "+%s.%N"]  # prints the moment of its own start: its start-up (about 0.7 ms) is counted as ours
SLEEP = ["/bin/sleep", "600"]
ROUNDS, CROWD = 30, 20
PATIENCE_S = 30.0


class Started(NamedTuple):
    """A keeper on its way: who says its first word, and where its run is."""

    run: Path
    word: int

    def first_word(self) -> dict[str, object]:
        with open(self.word, "rb") as file:
            return dict(json.loads(file.read()))


Start = Callable[[int, int], None]
"""Starts a keeper that has these two descriptors as its stdin and stdout."""


def begin(start: Start, run: Path, argv: list[str]) -> Started:
    run.mkdir()
    spec = {"proto": 1, "run_dir": str(run), "argv": argv, "env": {"PATH": "/bin"}, "cwd": "/"}
    (stdin, ours), (word, stdout) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    start(stdin, stdout)
    for fd in (stdin, stdout):
        os.close(fd)
    os.write(ours, json.dumps(spec).encode())
    os.close(ours)
    return Started(run, word)


def process(arguments: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", KEEPER_FILE, *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, env={},
        cwd="/", start_new_session=True,
    )  # fmt: skip


@contextmanager
def by_itself() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield lambda stdin, stdout: started.append(process([], stdin, stdout))
    finally:
        for each in started:
            each.kill()
            each.wait()


@contextmanager
def forked(say: Callable[[str], None] = lambda text: None) -> Iterator[Start]:
    """By a zygote, whose own memory is said at the end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            zygote = process(["fork"], theirs.fileno(), subprocess.DEVNULL)
        ours.recv(16)
        pids: list[int] = []

        def heed() -> None:
            """Its answers so far; it would wait for whoever leaves some hundred of them."""
            with suppress(BlockingIOError):
                while answer := ours.recv(16, socket.MSG_DONTWAIT):
                    pids.append(int(answer))

        def start(stdin: int, stdout: int) -> None:
            heed()
            socket.send_fds(ours, [b"k"], [stdin, stdout])

        yield start
        heed()
        say(f"    the zygote itself: {memory(zygote.pid)}")
    zygote.wait()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


def until_exec(start: Start, root: Path, together: int) -> float:
    """Milliseconds from the first start to the last exec."""
    before = time.time()
    begun = [begin(start, root / str(number), STAMP) for number in range(together)]
    said = []
    for each in begun:
        assert each.first_word()["ready"]
        spool, end = each.run / "out.spool", time.monotonic() + PATIENCE_S
        while not spool.read_bytes().endswith(b"\n"):
            assert time.monotonic() < end
            time.sleep(0.001)
        said.append(float(spool.read_bytes()))
    return (max(said) - before) * 1000


def times(start: Start, rounds: int, together: int) -> str:
    figures = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root:
            figures.append(until_exec(start, Path(root), together))
            time.sleep(0.05)  # its keepers write their records
    return f"median {statistics.median(figures):5.1f} ms, best {min(figures):5.1f}, worst {max(figures):5.1f}"


def at_rest(start: Start) -> str:
    """Of one among `CROWD` keepers whose CLI sleeps."""
    with tempfile.TemporaryDirectory() as root:
        begun = [begin(start, Path(root) / str(number), SLEEP) for number in range(CROWD)]
        for each in begun:
            assert each.first_word()["ready"]
        pids = [json.loads((each.run / "start.json").read_text())["keeper_pid"] for each in begun]
        time.sleep(0.5)
        before = sum(map(ticks, pids))
        time.sleep(3)
        return f"{memory(*pids)}; {sum(map(ticks, pids)) - before} ticks of {CROWD} in 3 s"


def memory(*pids: int) -> str:
    """Kilobytes, the median: what is a process's own, and its share where pages are shared by several."""
    found = {"Private_Dirty": list[int](), "Pss": list[int]()}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name].append(int(rest.split()[0]))
    return ", ".join(f"{name} {statistics.median(values):.0f} kB" for name, values in found.items())


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    print("load", Path("/proc/loadavg").read_text().split()[0])
    for name, way in (("by itself", by_itself()), ("forked by a zygote", forked(print))):
        print(name)
        with way as start:
            print("    to the exec of its CLI, one:", times(start, ROUNDS, 1))
            print("    the same, ten at once:      ", times(start, ROUNDS // 3, 10))
            print(f"    at rest, one of {CROWD}:        ", at_rest(start))


if __name__ == "__main__":
    main()

"""Run by hand: `python tests/keeper/measure.py`. Prints what a keeper costs on this machine."""

from __future__ import annotations

import py_compile
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import keeper_probe
from keeper_probe import KeeperProbe

STAMP = "/bin/date"  # prints the moment of its own start: its start-up (about 0.7 ms) is counted as ours


def stamped(directory: Path) -> tuple[float, KeeperProbe]:
    before = time.time()
    return before, KeeperProbe(directory, [STAMP, "+%s.%N"], env={}, marker={})


def until_exec(root: Path, together: int) -> float:
    """Milliseconds from the first Popen to the last exec."""
    started = [stamped(root / str(number)) for number in range(together)]
    last = 0.0
    for _, probe in started:
        assert probe.exit()["exit_code"] == 0, probe.exit()
        last = max(last, float(probe.out()))
        probe.close()
    return (last - started[0][0]) * 1000


def median_of(rounds: int, together: int) -> str:
    figures = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as root:
            figures.append(until_exec(Path(root), together))
    return f"median {statistics.median(figures):.1f} ms, best {min(figures):.1f}, worst {max(figures):.1f}"


def idle(mode: str) -> str:
    with tempfile.TemporaryDirectory() as root:
        probe = KeeperProbe(Path(root) / "run", ["/bin/sleep", "60"], stdout_mode=mode)
        probe.ready()
        time.sleep(0.2)
        before = ticks(probe.process.pid)
        time.sleep(3)
        rollup = Path(f"/proc/{probe.process.pid}/smaps_rollup").read_text()
        dirty = next(line for line in rollup.splitlines() if line.startswith("Private_Dirty"))
        report = f"{' '.join(dirty.split())}; {ticks(probe.process.pid) - before} ticks in 3 s"
        probe.close()
        return report


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    print("load", Path("/proc/loadavg").read_text().split()[0])
    print("one, from source:   ", median_of(30, 1))
    print("ten at once, source:", median_of(9, 10))
    print("idle, pipe:", idle("pipe"))
    print("idle, file:", idle("file"))
    with tempfile.TemporaryDirectory() as root:
        keeper_probe.KEEPER = Path(
            py_compile.compile(str(keeper_probe.KEEPER), cfile=root + "/keeper.pyc", optimize=2) or ""
        )
        print("one, compiled:      ", median_of(30, 1))
        print("ten at once, compiled:", median_of(9, 10))
        print("idle, compiled:", idle("pipe"))


if __name__ == "__main__":
    main()

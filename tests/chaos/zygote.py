"""A process that has loaded the daemon's code once and forks one daemon for each line on its stdin.

    python -m tests.chaos.zygote SABOTAGE serve --socket ...

A start of `clisup serve` spends a second of processor time on imports, and two hundred kills need two hundred starts. A
child made here runs all that `clisup serve` runs, in the same order, but for the imports and its second `execve`. For each
line (what to arm) it says the child's pid, and its return code when it is dead; the pid stays its own until the next line.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

__all__ = ["STACKS", "Life", "Zygote"]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
STACKS = signal.SIGUSR1
"""Makes a daemon write its stacks into its log; for one that hangs."""


class Zygote:
    """The tests' side of it."""

    def __init__(self, argv: list[str], env: dict[str, str], log: Path, sabotage: str = "") -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, sabotage, *argv],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=ROOT, bufsize=0,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, failpoints: str) -> Life:
        """A new daemon. The one before it must be dead."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{failpoints}\n".encode())
        return Life(self._process.stdout.fileno())

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Life:
    """A daemon that a zygote forked, with the part of `Popen` that is used of it."""

    def __init__(self, words: int) -> None:
        self._words = words
        self.returncode: int | None = None
        self.pid = self._word()

    def _word(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._words], [], [], PATIENCE_S)
            byte = os.read(self._words, 1) if ready else b""
            assert byte, "the zygote does not answer: its log says why"
            line += byte
        return int(line)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._words], [], [], 0)[0]:
            self.returncode = self._word()
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        if self.returncode is None and not select.select([self._words], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("the daemon", timeout)
        if self.returncode is None:
            self.returncode = self._word()
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)  # its zygote has not reaped it: the pid is its own


def main() -> None:
    sabotage, *argv = sys.argv[1:]
    _load(sabotage)
    pid = 0
    for line in sys.stdin:
        if pid:
            os.waitpid(pid, 0)
        pid = os.fork()
        if pid == 0:
            _be_daemon(argv, line.strip())
        print(pid, flush=True)
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert end is not None
        print(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status, flush=True)


def _load(sabotage: str) -> None:
    import clisup.cli.serve
    import clisup.daemon.app  # noqa: F401
    from clisup.backends.registry import get_adapter
    from tests.chaos.sabotage import SABOTAGES

    for name in ("claude", "demo"):
        get_adapter(name)
    if sabotage:
        SABOTAGES[sabotage]()
    gc.collect()
    gc.freeze()


def _be_daemon(argv: list[str], failpoints: str) -> NoReturn:
    """What follows in `clisup serve` after its imports."""
    from clisup.cli.main import main as clisup
    from clisup.host.failpoints import VARIABLE

    code = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        faulthandler.register(STACKS)
        os.environ[VARIABLE] = failpoints
        sys.argv = ["clisup", *argv]
        _start_anew_in_place()
        code = clisup()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 70
    finally:
        os._exit(code)


def _start_anew_in_place() -> None:
    """The daemon executes itself once, for a clean environment in /proc: here it gets that environment, and goes on."""
    execute = os.execve

    def stay(_path: str, _argv: list[str], env: dict[str, str]) -> None:
        os.execve = execute
        os.environ.clear()
        os.environ.update(env)

    os.execve = stay  # type: ignore[assignment]


if __name__ == "__main__":
    main()

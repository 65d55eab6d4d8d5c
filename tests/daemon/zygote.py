"""A process that has loaded the daemon's code once and forks daemons: a start then costs a tenth of its processor time.

`clisup serve` spends over a second of processor time on imports, because it executes itself once; the suite starts hundreds.
A child made here runs all that `clisup serve` runs, in the same order, but for the imports and its second `execve`. What
/proc says of it (environ, descriptors, signals, limits, session) is held equal by test_harness.py; its argv is ours.

Nothing runs in the zygote itself: no thread, no event loop. It ends with whoever started it, and its daemons with it.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["STACKS", "Forked", "Zygote", "zygote"]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
REQUEST_BYTES = 160_000  # below what a packet of a Unix socket holds by default
STACKS = signal.SIGUSR1
"""Makes a daemon that was forked with `stacks=True` write its stacks into its log; for one that hangs."""


class Zygote:
    """The tests' side of it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(
        self, argv: list[str], env: dict[str, str], log: Path, *, stacks: bool = False, before: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> Forked:  # fmt: skip
        """A daemon with this command line (from `serve` on), environment and file for stdout and stderr.

        `before` names functions, "module:name", that it calls first: to break it on purpose. `cwd` is its directory, by
        default the one of the tests.
        """
        place = os.getcwd() if cwd is None else str(cwd)
        request = json.dumps({"argv": argv, "env": env, "stacks": stacks, "before": before, "cwd": place}).encode()
        assert len(request) < REQUEST_BYTES, "too much for one packet"
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as out:
            socket.send_fds(self._socket, [request], [out.fileno(), theirs.fileno()])
        return Forked(ours)

    def close(self) -> None:
        """End it, and with it every daemon that it has forked."""
        self._socket.close()
        self._process.wait(PATIENCE_S)


@functools.cache
def zygote() -> Zygote:
    """The one of this process: it starts with the first daemon, and ends with us."""
    made = Zygote()
    atexit.register(made.close)
    return made


class Forked:
    """A daemon that a zygote forked, with the part of `Popen` that tests use. Only the zygote reaps it."""

    def __init__(self, words: socket.socket) -> None:
        self._words = words
        self.returncode: int | None = None
        words.settimeout(PATIENCE_S)
        pid, fds, _, _ = socket.recv_fds(words, 32, 1)
        assert fds, "the zygote does not answer: its stderr says why"
        self.pid, (self._pidfd,) = int(pid), fds

    def poll(self) -> int | None:
        """The return code, as of `Popen`, once it is dead and reaped."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"daemon {self.pid}", timeout)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._words], [], [], timeout)[0]:
            word = self._words.recv(32)
            assert word, "the zygote is dead"
            self.returncode = int(word)
            self._words.close()
            os.close(self._pidfd)
        return self.returncode

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """As of `Popen`: nothing where it is dead."""
        if self.poll() is None:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                pass  # reaped, and the word of it is on its way

    def __del__(self) -> None:
        if self.returncode is None and hasattr(self, "_pidfd"):
            self._words.close()
            os.close(self._pidfd)


# -- the process itself ------------------------------------------------------------------------------------------------


def main() -> None:
    """Fork for each request, say each end, until nobody is left to ask."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    _load()
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    living: dict[int, tuple[int, socket.socket]] = {}  # pidfd: pid, whom to tell
    while True:
        for fd, _ in poll.poll():
            if fd in living:
                poll.unregister(fd)
                _tell_end(fd, *living.pop(fd))
                continue
            data, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
            if not data:
                _end_all(living)
                return
            log, words = fds[0], socket.socket(fileno=fds[1])
            pid = os.fork()
            if pid == 0:
                _be_daemon(json.loads(data), log)
            os.close(log)
            pidfd = os.pidfd_open(pid)
            living[pidfd] = pid, words
            poll.register(pidfd, select.POLLIN)
            _say(words, pid, [pidfd])


def _say(words: socket.socket, number: int, fds: list[int]) -> None:
    try:
        socket.send_fds(words, [str(number).encode()], fds)
    except BrokenPipeError:
        pass  # nobody wants to know any more


def _tell_end(pidfd: int, pid: int, words: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    _say(words, os.waitstatus_to_exitcode(status), [])
    os.close(pidfd)
    words.close()


def _end_all(living: dict[int, tuple[int, socket.socket]]) -> None:
    for pidfd, (pid, _) in living.items():
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitpid(pid, 0)


def _load() -> None:
    """All that a daemon may import in its life, so that no child does it again."""
    import clisup.cli.commands.daemon
    import clisup.cli.main
    import clisup.cli.root
    import clisup.daemon.app  # noqa: F401
    from clisup.backends.registry import BUILT_IN, get_adapter

    for name in BUILT_IN:
        get_adapter(name)
    gc.collect()
    gc.freeze()


def _be_daemon(request: dict[str, Any], log: int) -> NoReturn:
    """What `python -m clisup serve ...` does, after its imports."""
    code = 1
    try:
        _take_place(request, log)
        code = _serve(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _take_place(request: dict[str, Any], log: int) -> None:
    """Be as a process that was just executed, with the given environment."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number, fd in enumerate((null, log, log)):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["stacks"]:
        faulthandler.register(STACKS)


def _serve(request: dict[str, Any]) -> int:
    import trio

    from clisup.cli.main import main as clisup

    trio._core._run._r.seed()  # the order in which tasks run is chance: not the same one for each child
    for function in request["before"]:
        _call(function)
    sys.argv = ["clisup", *request["argv"]]
    _start_anew_in_place()
    return clisup()


def _call(function: str) -> None:
    module, _, name = function.partition(":")
    sys.path.insert(0, str(ROOT))
    getattr(import_module(module), name)()
    sys.path.remove(str(ROOT))


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

"""Start of the CLI: the fork, the steps up to the exec, and a check of the CLI's environment."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress
from typing import Any, NoReturn

from clisup.keeper.spec import RunSpec
from clisup.keeper.system import (
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    close_descriptors,
    fork_into,
    lower_mark,
    prctl,
    read_file,
    read_stat,
    write_file,
)

EXEC_LIMIT_S = 30.0  # between fork and exec: more is a hung mount, and a failed spawn
ATTEST_S = 0.05  # the kernel closes our pipe a moment before it publishes the new environment


class SpawnFailed(Exception):
    """The CLI was not executed. `record` has the stage and the reason."""

    def __init__(self, stage: str, number: int, message: str) -> None:
        self.record: dict[str, Any] = {"stage": stage, "errno": number, "message": message}


def spawn(spec: RunSpec, stdio: tuple[int, int, int]) -> int:
    """Start the CLI with these descriptors, and return its pid after the exec. If it raises `SpawnFailed`, nothing runs."""
    argv0 = spec.argv[0].decode(errors="backslashreplace")
    _check_executable(argv0)
    report, reported = os.pipe2(os.O_CLOEXEC)
    child = _Child(spec, stdio, reported)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # our handlers must not run in the child
    try:
        pid = child.fork()
    except OSError as error:
        number = error.errno or errno.EAGAIN
        raise SpawnFailed("fork", number, f"cannot run {argv0}: {os.strerror(number)} (fork)") from None
    if pid == 0:
        child.run()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.close(reported)
    _wait_for_exec(pid, report, argv0, spec.cwd)
    return pid


def _check_executable(path: str) -> None:
    """Raise `SpawnFailed` for a program whose exec would clear PDEATHSIG. Such a CLI could outlive a killed keeper."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # exec reports the error better
    if mode & 0o6000:
        raise SpawnFailed("check", errno.EPERM, f"cannot run {path}: it is set-uid or set-gid")
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return
    raise SpawnFailed("check", errno.EPERM, f"cannot run {path}: it has file capabilities")


class _Child:
    """Process between fork and exec. Each step sets `stage` first, so that a failure names the step."""

    def __init__(self, spec: RunSpec, stdio: tuple[int, int, int], report: int) -> None:
        self.spec, self.stdio, self.report = spec, stdio, report
        self.keeper = os.getpid()
        self.born_in_cgroup = False
        self.stage = "setup"

    def fork(self) -> int:
        """Fork, into the cgroup if the kernel can. Return the child's pid, or 0 in the child. Raises `OSError`."""
        if self.spec.cgroup:
            try:
                self.born_in_cgroup = True
                return fork_into(self.spec.cgroup)
            except OSError:
                self.born_in_cgroup = False  # the child moves itself, or reports the failure
        return os.fork()

    def run(self) -> NoReturn:
        try:
            self.bind_to_keeper()
            self.reset_signals()
            lower_mark()
            self.arrange_descriptors()
            self.place()
            self.stage = "exec"
            os.execve(self.spec.argv[0], self.spec.argv, self.spec.env)
        except BaseException as error:  # the child has no other way to report
            number = getattr(error, "errno", None) or errno.EINVAL
            with suppress(OSError):
                os.write(self.report, f"{self.stage}:{number}".encode())
        finally:
            os._exit(127)

    def bind_to_keeper(self) -> None:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self.keeper:  # the keeper died before the line above
            os._exit(127)

    def reset_signals(self) -> None:
        for number in range(1, signal.NSIG):
            if signal.getsignal(number) == signal.SIG_IGN:  # the exec itself resets caught signals
                with suppress(OSError):
                    signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def arrange_descriptors(self) -> None:
        self.stage = "stdio"
        for target, fd in enumerate(self.stdio):
            os.dup2(fd, target)
        if self.report != 3:
            os.dup2(self.report, 3, inheritable=False)
            self.report = 3
        close_descriptors(4)

    def place(self) -> None:
        """Set the out-of-memory score (only upwards), the cgroup, the umask and the directory."""
        self.stage = "oom_score_adj"
        if self.spec.oom_score_adj > int(read_file("/proc/self/oom_score_adj")):
            prctl(PR_SET_DUMPABLE, 1)  # root owns the /proc files of an undumpable process; the exec sets this anyway
            write_file("/proc/self/oom_score_adj", str(self.spec.oom_score_adj))
        self.stage = "cgroup"
        if self.spec.cgroup and not self.born_in_cgroup:
            write_file(self.spec.cgroup + "/cgroup.procs", "0")
        os.umask(self.spec.umask)
        self.stage = "chdir"
        os.chdir(self.spec.cwd)


def _wait_for_exec(pid: int, report: int, argv0: str, cwd: str) -> None:
    """Wait for EOF of the close-on-exec pipe. If the child reports a failure, reap the child and raise `SpawnFailed`."""
    poller = select.poll()
    poller.register(report, select.POLLIN)
    late = not poller.poll(EXEC_LIMIT_S * 1000)
    failure = b"" if late else os.read(report, 256)
    os.close(report)
    if not late and not failure:
        return
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, os.WNOHANG if late else 0)
    stage, _, number = failure.decode().partition(":") if failure else ("timeout", ":", str(errno.ETIMEDOUT))
    why = os.strerror(int(number))
    if stage == "chdir":
        raise SpawnFailed(
            stage, int(number), f"cannot use the session's directory {cwd}: {why}; make it again to go on"
        )
    raise SpawnFailed(stage, int(number), f"cannot run {argv0}: {why} ({stage})")


def has_environment(pid: int, env: dict[bytes, bytes]) -> bool | None:
    """Tell whether the kernel shows exactly this environment. Return None after the process's end, or without access."""
    expected = sorted(name + b"=" + value for name, value in env.items())
    end = time.monotonic() + ATTEST_S
    while True:
        stat = read_stat(pid)
        if stat is None or not stat.alive:
            return None
        try:
            seen = read_file(f"/proc/{pid}/environ")
        except OSError:
            return None
        if seen or not expected:
            return sorted(seen.split(b"\0")[:-1]) == expected
        if time.monotonic() > end:
            return None
        time.sleep(0.0002)

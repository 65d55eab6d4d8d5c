"""State of one run and its phases: running -> draining -> waiting -> flushing -> over."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from contextlib import suppress
from typing import Any

from clisup.keeper.child import SpawnFailed, has_environment, spawn
from clisup.keeper.control import ControlSocket
from clisup.keeper.run_dir import RunDirectory
from clisup.keeper.spec import PROTO, RunSpec
from clisup.keeper.streams import LimitedStderr, OutputFile, Outputs, OutputStream, StdinQueue
from clisup.keeper.system import PR_SET_CHILD_SUBREAPER, prctl, read_file, read_stat
from clisup.keeper.tree import SIGNALS, ProcessTree

EOF_S = 0.25  # for EOF after the CLI's exit: an orphan may hold the pipe for ever
FLUSH_S = 60.0  # for a full disk to find space once the CLI is dead
LINGER_S = 2.0  # for the daemon to read the last push
RETRY_S = 0.25  # between two tries to write the exit record
HOME_LOOK_S = 30.0  # between two looks, without a daemon, whether the run directory still exists
_LIMITS = {0: "output_limit", errno.EFBIG: "file_size"}
RUNNING, DRAINING, WAITING, FLUSHING, OVER = "running", "draining", "waiting", "flushing", "over"

Steps = list[tuple[str, float]]
"""Signals by name, each with the seconds until the next."""


class EndLadder:
    """Order to end the CLI: signals, each with a grace, then SIGKILL for the whole tree."""

    def __init__(self) -> None:
        self.due: float | None = None
        """Time of the next step, or None without an order."""
        self.sent: Steps = []
        self._steps: deque[tuple[str, float]] = deque()

    def order(self, steps: Steps, now: float) -> None:
        """Begin. A further order moves to the next step now and can only shorten the rest (no steps: SIGKILL at once)."""
        if self.due is None or len(steps) < len(self._steps):
            self._steps = deque(steps)
        self.due = now

    def take(self, now: float) -> str | None:
        """Return the due signal, or None, and set the time of the next signal."""
        if self.due is None or now < self.due:
            return None
        name, grace = self._steps.popleft() if self._steps else ("KILL", 0.0)
        self.due = now + grace
        return name


class Keeper:
    """Keeper of one run, from the start record to the exit record."""

    control: ControlSocket
    outputs: Outputs

    def __init__(self, spec: RunSpec, run: RunDirectory) -> None:
        self.spec, self.run = spec, run
        self.tree = ProcessTree(spec.cgroup)
        self.ladder = EndLadder()
        self.stdin = StdinQueue(-1)
        self.phase = RUNNING
        self.phase_until = 0.0
        self.record: dict[str, Any] | None = None
        self.main_start: int | None = None
        self._attested: bool | None = None
        self._started = self._exited = time.monotonic()
        self._reason = "exit"
        self._spawn_failed: dict[str, Any] | None = None
        self._fault: str | None = None
        self._home_seen_at = 0.0
        self._record_at = 0.0

    # -- start

    def prepare(self) -> None:
        """Prepare everything that can fail without a CLI, then write the mark of a possible CLI. Raises `OSError`."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.control = ControlSocket(self.run.listen())
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        stdout = OutputFile if self.spec.stdout_mode == "file" else OutputStream
        stderr = LimitedStderr if self.spec.stderr_bytes else OutputStream
        self.outputs = Outputs(
            stdout("out", self.run.open("out.spool", append), self.spec.spool_bytes),
            stderr("err", self.run.open("err.spool", append), self.spec.stderr_bytes),
            self.control,
        )
        self._exit_fd = self.run.reserve("exit.json")
        own = read_stat(self.tree.keeper)
        self._identity = {
            "proto": PROTO, "keeper_pid": self.tree.keeper, "keeper_start_time": own.start if own else None,
            "boot_id": read_file("/proc/sys/kernel/random/boot_id").decode().strip(), "marker": self.spec.marker,
        }  # fmt: skip
        self._write_start("spawning")

    def _write_start(self, stage: str, **more: Any) -> None:
        """Write start.json. After a power loss only its existence counts: a CLI may have run."""
        self.run.write("start.json", {**self._identity, "stage": stage, **more})

    def start(self) -> dict[str, Any]:
        """Start the CLI and queue the first input. Return the line for the daemon. Raises `SpawnFailed`."""
        stdin, feed = os.pipe2(os.O_CLOEXEC)
        self.outputs.err.source, stderr = os.pipe2(os.O_CLOEXEC)
        self.outputs.out.source, stdout = self._stdout_ends()
        for fd in (feed, self.outputs.err.source, self.outputs.out.source):
            os.set_blocking(fd, False)  # of our ends only: the flag belongs to the open file, not to the pipe
        self.stdin = StdinQueue(feed)
        self._started = time.monotonic()
        self.tree.main = spawn(self.spec, (stdin, stdout, stderr))
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        stat = read_stat(self.tree.main)
        self.main_start = stat.start if stat else None
        self._attested = has_environment(self.tree.main, self.spec.env)
        who = {"pid": self.tree.main, "start_time": self.main_start, "env_attested": self._attested}
        with suppress(OSError):
            self._write_start("running", **who)
        if self.spec.stdin:
            self.stdin.add(None, self.spec.stdin)
        if self.spec.stdin_eof:
            self.stdin.add(None, None)
        self.spec.forget_secrets()
        return {"ready": True, **who}

    def _stdout_ends(self) -> tuple[int, int]:
        if not isinstance(self.outputs.out, OutputFile):
            return os.pipe2(os.O_CLOEXEC)
        theirs = self.run.open("out.raw", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        return self.run.open("out.raw", os.O_RDONLY), theirs

    # -- time

    @property
    def cli_runs(self) -> bool:
        return self.phase == RUNNING and self.tree.status is None

    @property
    def ending(self) -> bool:
        """Tell whether the run was ordered to end or is ending."""
        return self.ladder.due is not None or self.phase != RUNNING

    def deadlines(self) -> list[float]:
        """Return the times at which `check` has work. An idle keeper has no deadline and never wakes."""
        due = [] if self.phase == OVER else self.outputs.deadlines()
        if self.phase == FLUSHING and self._record_at:
            due.append(self._record_at)
        if self.phase != RUNNING:
            due.append(self.phase_until)
        elif self.ladder.due is not None:
            due.append(self.ladder.due)
        else:
            due += [at for at in (self._wall_end(), self._lease_end(), self._home_look_at()) if at is not None]
        return due

    def check(self, now: float) -> None:
        """Handle the due deadlines."""
        if self.phase == OVER:
            return
        self.outputs.check(now)
        if self.outputs.out.dropped and self.cli_runs and self.ladder.due is None:
            self.end(_LIMITS.get(self.outputs.out.fault, "storage"), self.term_ladder())
        self._climb(now)
        advance = {
            RUNNING: self._check_running, DRAINING: self._check_draining, WAITING: self._check_waiting,
            FLUSHING: self._check_flushing,
        }  # fmt: skip
        advance[self.phase](now)

    def _wall_end(self) -> float | None:
        return self._alone_until(self.spec.wall_s)

    def _lease_end(self) -> float | None:
        return self._alone_until(self.spec.lease_s)

    def _alone_until(self, limit_s: float) -> float | None:
        """Return the end of a limit that counts from the daemon's departure.

        While a daemon is connected, the daemon's own limits apply. The daemon knows about a full disk and about the CLI's background work.
        """
        connection = self.control.connection
        return None if connection.open or not limit_s else connection.closed_at + limit_s

    def _home_look_at(self) -> float | None:
        """Return the time of the next check of the run directory: at the daemon's departure, then every `HOME_LOOK_S`."""
        connection = self.control.connection
        if connection.open:
            return None
        if self._home_seen_at < connection.closed_at:
            return connection.closed_at
        return self._home_seen_at + HOME_LOOK_S

    # -- the phases

    def _check_running(self, now: float) -> None:
        wall, lease, look = self._wall_end(), self._lease_end(), self._home_look_at()
        if self.tree.status is not None:
            self._main_ended(now)
        elif self.ladder.due is not None:
            return
        elif wall is not None and now >= wall:
            self.end("watchdog:turn", self.term_ladder())
        elif lease is not None and now >= lease:
            self.end("lease", self.term_ladder())
        elif look is not None and now >= look:
            self._home_seen_at = now
            if self.run.removed:  # no daemon can find this run any more, so the lease is over
                self.end("lease", self.term_ladder())

    def term_ladder(self) -> Steps:
        return [("TERM", self.spec.term_grace_s)]

    def end(self, reason: str, steps: Steps) -> None:
        """Order the end of the run. After the CLI's exit, end the grace of the orphans."""
        now = time.monotonic()
        if self.phase in (DRAINING, WAITING):
            self.phase_until, self.spec.orphan_grace_s = now, 0.0
        if not self.cli_runs:
            return
        if self.ladder.due is None:
            self._reason = reason
        self.ladder.order(steps, now)
        self._climb(now)

    def _climb(self, now: float) -> None:
        """Send the due signal of the ladder."""
        if not self.cli_runs or (name := self.ladder.take(now)) is None:
            return
        self.ladder.sent.append((name, now - self._started))
        if name != "KILL":
            self.tree.signal(SIGNALS[name], whole=name != "INT")
            return
        self.tree.kill()
        if self.tree.status is None:
            self._main_ended(time.monotonic())

    def _main_ended(self, now: float) -> None:
        """Enter draining: the CLI is gone, or cannot be killed. The exit code goes to disk first."""
        self._exited, self.ladder.due = now, None
        for number in self.stdin.abandon():
            self.control.connection.send({"nack": number, "error": "exited"})
        how = self.tree.exit_status()
        with suppress(OSError):
            self._write_start("main_exited", pid=self.tree.main, start_time=self.main_start, **how)
        self.control.push({"push": "main_exited", **how})
        self.phase, self.phase_until = DRAINING, now + EOF_S
        self.outputs.drain()
        self._check_draining(now)

    def _check_draining(self, now: float) -> None:
        """Wait for the end of output, which an orphan may delay. Only orphans of a CLI that exited by itself get a grace."""
        if not self.outputs.at_end and now < self.phase_until and not self.tree.childless:
            return
        patient = self.spec.orphans == "grace" and self._reason == "exit"
        self.phase, self.phase_until = WAITING, self._exited + self.spec.orphan_grace_s if patient else now
        self._check_waiting(now)

    def _check_waiting(self, now: float) -> None:
        """Wait for the CLI's orphans, then kill or keep the orphans, as the spec says."""
        if not self.tree.childless and now < self.phase_until:
            return
        if not self.tree.childless and self.spec.orphans == "keep" and self._reason == "exit":
            self.tree.note("kept", self.tree.living())
        elif not self.tree.childless:
            self.tree.kill()
        self.phase, self.phase_until = FLUSHING, time.monotonic() + FLUSH_S
        self._check_flushing(now)

    def _check_flushing(self, now: float) -> None:
        """Write the rest of the output, then the record. A full disk gets `FLUSH_S` to find space."""
        self.outputs.finish()
        if (self.outputs.blocked and now < self.phase_until) or now < self._record_at:
            return
        try:
            self.write_record()
        except OSError as error:
            if now >= self.phase_until:
                raise
            self._fault, self._record_at = f"OSError {error.errno}", now + RETRY_S

    def set_orphan_grace(self, grace_s: float) -> None:
        """Change the grace of an exited CLI's orphans."""
        self.spec.orphan_grace_s = grace_s
        if self.phase == WAITING and self.spec.orphans == "grace":
            self.phase_until = self._exited + grace_s

    # -- the exit record

    def write_record(self) -> None:
        """Write exit.json, which ends the run. Raises `OSError`."""
        blocked = self.outputs.blocked
        record = self._exit_record(blocked)
        self.run.commit(self._exit_fd, "exit.json", record)
        if isinstance(self.outputs.out, OutputFile) and not blocked:
            self.run.unlink("out.raw")  # the spool has all bytes of this file
        self.record = record
        self.phase, self.phase_until = OVER, time.monotonic() + LINGER_S
        self.control.push({"push": "exited", "exit": record})

    def _exit_record(self, blocked: bool) -> dict[str, Any]:
        return {
            "proto": PROTO, **self.tree.exit_status(), "reason": self._reason, "ladder": self.ladder.sent,
            **self.tree.record(), **self.outputs.record(),
            "duration_s": self._exited - self._started, "t_exit_monotonic": self._exited,
            "stdin_error": self.stdin.error, "blocked": blocked, "file_shrunk": self.outputs.file_shrunk,
            "env_attested": self._attested, "spawn_failed": self._spawn_failed, "keeper_fault": self._fault,
        }  # fmt: skip

    def record_failed_spawn(self, failure: SpawnFailed) -> None:
        """Write the record of a CLI that was not executed."""
        self._reason, self._spawn_failed = "spawn_failed", failure.record
        self._exited = time.monotonic()
        with suppress(OSError):
            self.write_record()

    def record_fault(self, fault: str) -> None:
        """Kill the tree and write the record, after an error in the keeper itself."""
        self._reason, self._fault = "keeper_fault", fault
        self._exited = time.monotonic()
        self.tree.kill()
        if self.record is None:
            with suppress(OSError):
                self.write_record()

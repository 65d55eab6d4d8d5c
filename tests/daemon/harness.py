"""A real daemon in a directory of its own, and what a test asks of it: restart, kill, and proof that nothing is left."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from session_probe import SessionProbe
from toml_text import toml
from wire import PATIENCE_S, Hangup, Wire, pauses
from zygote import Forked, zygote

from clisup.daemon.runs.leftovers import keeper_of
from clisup.host.process.cgroups import CgroupHome, remove
from clisup.host.process.markers import RunMarker, of_session, state_id
from clisup.store.session_dir import RunDir
from tests.fakecli import COMMAND

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
DEFAULTS: dict[str, Any] = {
    "backends.demo": {"command": list(COMMAND)},
    "backends.demo.timeouts": {"startup": 30, "model_idle": 60, "tool_idle": 60, "linger": 20, "term_grace": 1},
    "backends.demo.limits": {},
    "backends.demo.live": {},
}


def until(what: Callable[[], Any], why: str | Callable[[], str] = "", patience: float = PATIENCE_S) -> Any:
    """Poll until `what()` is true, and give it. A `why` that costs something to say is a function."""
    end, pause = time.monotonic() + patience, pauses()
    while not (value := what()):
        assert time.monotonic() < end, f"waited in vain: {(why() if callable(why) else why) or what}"
        time.sleep(next(pause))
    return value


def children_of(pid: int) -> list[int]:
    """Pids of what its threads have started, and what has become theirs (proc(5)); none of one that is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that is gone
            found += map(int, path.read_text().split())
    return found


def name_of(pid: int) -> str:
    """Return the name that `ps -o comm` shows, or "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Harness:
    """One state directory, and the daemon that serves it at present.

    Daemons are forked by a zygote. `cold=True` is for tests that look at the start itself, or at what only `execve` gives:
    each is then a whole `python -m clisup serve`.
    """

    settle_s = 10.0
    """For what a daemon that has ended leaves behind to be gone, too."""

    def __init__(self, env: dict[str, str] | None = None, *, cold: bool = False, **tables: Any) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="cs", dir="/tmp"))
        self.state = self.root / "state"
        self.socket = str(self.root / "s")
        self.log = self.root / "log"
        self.cwd = self.root / "work"
        self.cwd.mkdir()
        (self.root / "home").mkdir()
        self.env = {**ENVIRONMENT, "HOME": str(self.root / "home"), **(env or {})}
        self.config = self.root / "config.toml"
        self.configure(**tables)
        self.cold = cold
        self.python = sys.executable  # of a cold start
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.faults_expected = self.closed = False
        self._wire: Wire | None = None

    def configure(self, **tables: Any) -> None:
        """Write the configuration: `daemon={...}, timeouts={...}, limits={...}, demo={...}`, `raw="..."` as it is."""
        raw = tables.pop("raw", "")
        named = {"daemon": "daemon", "demo": "backends.demo"}
        merged = {"daemon": {}, **{name: dict(table) for name, table in DEFAULTS.items()}}
        for name, table in tables.items():
            merged[named.get(name, f"backends.demo.{name}")] |= table
        text = "\n".join(f"[{name}]\n{toml(table)}" for name, table in merged.items())
        self.config.write_text(f"{text}\n{raw}")

    # -- the daemon's life

    def argv(self) -> list[str]:
        return [self.python, "-m", "clisup", *self.arguments()]

    def arguments(self) -> list[str]:
        flags = ["--socket", self.socket, "--state-dir", str(self.state), "--config", str(self.config)]
        return ["serve", *flags, "--log-format", "json"]

    def launch(self, **options: Any) -> subprocess.Popen[bytes] | Forked:
        """Start it, without waiting for anything. Options are those of `Popen`, and make it a cold start."""
        if not self.cold and not options:
            return zygote().fork(self.arguments(), self.env, self.log)
        with self.log.open("ab") as log:
            settings = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
            return subprocess.Popen(self.argv(), env=self.env, **(settings | options))

    def start(self, **options: Any) -> None:
        """Start it and wait until it serves."""
        self.process = self.launch(**options)
        until(self._serves, lambda: f"the daemon does not start: {self.log.read_text()[-2000:]}")

    def refusal(self) -> tuple[int, str]:
        """The exit code and the words of a daemon that does not start."""
        process = self.launch()
        try:
            return process.wait(PATIENCE_S), self.log.read_text()
        finally:
            process.kill()
            process.wait()

    def _serves(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            with Wire(self.socket) as wire:
                return int(wire.call("initialize")["server"]["pid"]) == self.process.pid
        except (OSError, Hangup):  # a child of the old one, between its fork and exec, may still hold the socket
            return False

    def kill(self) -> None:
        """kill -9, as in an accident."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._hang_up()

    def restart(self) -> None:
        self.kill()
        self.start()

    def identity(self) -> dict[str, Any]:
        """Who serves."""
        with self.wire() as wire:
            return dict(wire.call("initialize")["server"])

    def await_successor(self, before: str) -> None:
        """Wait until another daemon than the one with this instance id serves, in the same process."""
        self._hang_up()
        until(lambda: self._successor(before), "no successor serves")

    def _successor(self, before: str) -> bool:
        try:
            server = self.identity()
        except (Hangup, OSError):
            return False
        assert self.process is None or server["pid"] == self.process.pid
        return bool(server["instance_id"] != before)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal and give its exit code."""
        assert self.process is not None
        self._hang_up()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S * 2)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def limit_files(self, spare: int) -> tuple[int, int]:
        """Let it open only this many files more; gives the limits before."""
        before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{self.pid}/fd")}
        lowest = next(number for number in range(len(used) + 1) if number not in used)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (lowest + spare, before[1]))
        return before

    # -- talking to it

    def wire(self) -> Wire:
        """A new connection."""
        return Wire(self.socket)

    def call(self, method: str, /, **params: Any) -> Any:
        """Over a connection that is kept between calls."""
        if self._wire is None:
            self._wire = Wire(self.socket)
        return self._wire.call(method, **params)

    def new(self, **params: Any) -> SessionProbe:
        """A new session of the demo backend."""
        result = self.call("session/new", **{"backend": "demo", "cwd": str(self.cwd), **params})
        return SessionProbe(self, result["session_id"])

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # -- what is left

    def leftovers(self) -> dict[int, str]:
        """Keepers of this state directory, and processes with the marker of one of its sessions."""
        sessions = os.listdir(self.state / "sessions") if (self.state / "sessions").is_dir() else []
        state = state_id(str(self.state)) if sessions else ""
        locks = self.state.glob("sessions/*/runs/*/keeper.lock")
        runs = [RunDir(str(lock.parent)) for lock in locks if lock.is_file()]
        keepers = {pid for run in runs if (pid := keeper_of(run)) is not None}
        found = {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                argv, environ = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if pid in keepers or any(of_session(environ.split(b"\0"), name, state) for name in sessions):
                found[pid] = argv.replace(b"\0", b" ").decode(errors="replace")
        return found

    def keeper_zygote(self) -> int | None:
        """The pid of the process that forks keepers for the daemon, once there is one."""
        assert self.process is not None
        children = children_of(self.process.pid)
        return next((pid for pid in children if name_of(pid) == "clisup-zygote"), None)

    def faults(self) -> str:
        """What the daemon's log says of faults of its own."""
        lines = self.log.read_text().splitlines()
        return "\n".join(line for line in lines if "inside the daemon" in line or "Traceback" in line).replace(
            "\\n", "\n"
        )

    def close(self) -> None:
        """Stop it; prove that it left nothing running and met no fault of its own. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            if self.process is not None and self.process.poll() is None:
                self._hang_up()
                until(self._shut_down, "no answer to daemon/shutdown")
                code = self.process.wait(PATIENCE_S)
                assert code == 0, (code, self.log.read_text()[-6000:])
            until(lambda: not self.leftovers(), lambda: f"left behind: {self.leftovers()}", self.settle_s)
            if not self.faults_expected:
                assert not (faults := self.faults()), faults
        finally:
            self._end_everything()
            self._remove_cgroups()
            shutil.rmtree(self.root, ignore_errors=True)

    def _remove_cgroups(self) -> None:
        """A daemon that was killed leaves empty ones to the next daemon of its state directory, and here comes none."""
        if not self.state.exists():
            return
        home, state = CgroupHome.find(), state_id(str(self.state))
        for session_id, run in home.leftovers(state):
            path = home.of(RunMarker(session_id, run, state))
            if (self.state / "sessions" / session_id).exists() and path is not None:
                until(lambda path=path: remove(path), f"{path} is not empty", 10)

    def _shut_down(self) -> bool:
        """False while the cap on connections holds us off."""
        try:
            with self.wire() as wire:
                return bool(wire.call("daemon/shutdown", mode="kill"))
        except (Hangup, OSError, KeyError):
            return False

    def _end_everything(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

"""The unit that is shipped, as a service of the lab, and what a test asks of it and of its manager."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness import until
from session_probe import SessionProbe
from systemd_lab import SystemdLab
from wire import Hangup, Wire

from clisup.host import cgroups

UNIT = "clisup.service"
SHIPPED = Path(__file__).resolve().parents[2] / "systemd" / UNIT
COMMAND = ".local/share/clisup/bin/clisup"  # below the home, as the unit says
CONFIG = '[daemon]\non_stop = "kill"\n[backends.demo]\ntimeouts = {term_grace = 1}\n'


def units() -> dict[str, str]:
    """What both managers find: the shipped file, word for word."""
    return {UNIT: SHIPPED.read_text()}


def install(lab: SystemdLab) -> None:
    """The command where the unit looks for it, and a configuration whose stop would end every turn at once."""
    command = lab.home / COMMAND
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m clisup "$@"\n')
    command.chmod(0o755)
    config = lab.home / ".config" / "clisup" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    (lab.root / "work").mkdir()
    for manager in ("system", "user"):  # the home and the runtime directory are the user manager's own already
        dropin = lab.root / manager / f"{UNIT}.d" / "lab.conf"
        dropin.parent.mkdir()
        environment = f"Environment=HOME={lab.home} XDG_RUNTIME_DIR={lab.run}\n" if manager == "system" else ""
        dropin.write_text(f"[Service]\nStandardError=append:{lab.root}/{manager}.log\n{environment}")
        lab.systemctl(f"--{manager}", "daemon-reload")


class Service:
    """As `Harness`, but it is systemd that starts the daemon and ends it."""

    def __init__(self, lab: SystemdLab, manager: str) -> None:
        self.lab, self.manager = lab, f"--{manager}"
        self.state = lab.home / ".local" / "state" / "clisup"
        self.socket = str(lab.run / "clisup" / "clisup.sock")
        self.log = lab.root / f"{manager}.log"
        self._wire: Wire | None = None

    # -- its manager

    def systemctl(self, verb: str, *words: str) -> str:
        self.hang_up()
        return self.lab.systemctl(self.manager, verb, *words, UNIT)

    def show(self, *names: str) -> dict[str, str]:
        """Properties of the unit."""
        lines = self.lab.systemctl(self.manager, "show", *(f"-p{name}" for name in names), UNIT).splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def main_pid(self) -> int:
        return int(self.show("MainPID")["MainPID"])

    def start(self) -> None:
        """Make sure that it runs."""
        self.lab.systemctl(self.manager, "reset-failed")  # five starts a minute are the limit of the unit
        self.systemctl("start")
        self.await_daemon()

    def stop(self) -> None:
        self.systemctl("stop")

    def await_daemon(self) -> None:
        """Until the unit's main process serves."""
        until(self._serves, f"the daemon does not serve: {self.said()[-2000:]} {self.lab.said()}")

    def said(self) -> str:
        """The daemon's log."""
        return self.log.read_text() if self.log.exists() else ""

    def _serves(self) -> bool:
        try:
            with Wire(self.socket) as wire:
                return int(wire.call("initialize")["server"]["pid"]) == self.main_pid
        except (OSError, Hangup):
            return False

    def clisup(self, *words: str) -> str:
        """Run the command in the lab; gives its stdout."""
        self.hang_up()
        done = self.lab.inside(self.lab.home / COMMAND, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self) -> list[int]:
        """All that live in the unit's cgroup: the daemon, keepers, CLIs and their tools."""
        found = Path(self.lab.cgroup).rglob(UNIT)
        return [pid for path in found for pid in cgroups.members(str(path))]

    # -- the daemon

    def wire(self) -> Wire:
        return Wire(self.socket)

    def call(self, method: str, /, **params: Any) -> Any:
        """Over a connection that is kept between calls."""
        if self._wire is None:
            self._wire = Wire(self.socket)
        return self._wire.call(method, **params)

    def new(self) -> SessionProbe:
        result = self.call("session/new", backend="demo", cwd=str(self.lab.root / "work"))
        return SessionProbe(self, result["session_id"])  # type: ignore[arg-type]  # it asks for no more than this

    def hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

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

SHIPPED = Path(__file__).resolve().parents[2] / "systemd"
SYSTEM_USER = "root"  # without D-Bus in the lab nobody else can ask the system's manager for its jobs
UNITS = {"user": "clisup.service", "system": f"clisup@{SYSTEM_USER}.service"}
COMMAND = ".local/share/clisup/bin/clisup"  # below the home, as the unit says
CONFIG = '[daemon]\non_stop = "kill"\n[backends.demo]\ntimeouts = {term_grace = 1}\n'
# What a machine of tests may not let us make is left out, and the checkout, its python and the lab are let in. All else of the
# system's unit is as it is shipped.
PLACES = f"PrivateDevices=no\nBindReadOnlyPaths=-{sys.base_prefix} -{sys.prefix} -{SHIPPED.parent}\n"


def units() -> dict[str, str]:
    """What both managers find: the shipped files, word for word but for the place of the command."""
    return {file.name: file.read_text() for file in SHIPPED.iterdir()}


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
    drop_in(lab, "system", "clisup-tmp@.service", "PrivateDevices=no\n")
    for manager, unit in UNITS.items():
        extra = ""
        if manager == "system":
            execs = f"ExecStart=\nExecStart={command} serve\nExecReload=\nExecReload={command} daemon restart\n"
            extra = f"Environment=HOME={lab.home}\nBindPaths={lab.root}\n{PLACES}{execs}"
        drop_in(lab, manager, unit, f"StandardError=append:{lab.root}/{manager}.log\n{extra}")
        lab.systemctl(f"--{manager}", "daemon-reload")


def drop_in(lab: SystemdLab, manager: str, unit: str, text: str, name: str = "lab") -> Path:
    """A drop-in for a unit's [Service]; systemd has to be told of it."""
    file = lab.root / manager / f"{unit}.d" / f"{name}.conf"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"[Service]\n{text}")
    return file


class Service:
    """As `Harness`, but it is systemd that starts the daemon and ends it."""

    def __init__(self, lab: SystemdLab, manager: str) -> None:
        self.lab, self.manager = lab, f"--{manager}"
        self.unit = UNITS[manager]
        self.socket_unit = self.unit.replace(".service", ".socket")
        self.state = lab.home / ".local" / "state" / "clisup"
        place = lab.run / "clisup" if manager == "user" else lab.root / "clisup" / SYSTEM_USER
        self.socket = str(place / "clisup.sock")
        self.log = lab.root / f"{manager}.log"
        self._wire: Wire | None = None

    # -- its manager

    def systemctl(self, verb: str, *words: str) -> str:
        self.hang_up()
        return self.lab.systemctl(self.manager, verb, *words, self.unit)

    def show(self, *names: str) -> dict[str, str]:
        """Properties of the unit."""
        lines = self.lab.systemctl(self.manager, "show", *(f"-p{name}" for name in names), self.unit).splitlines()
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
        found = Path(self.lab.cgroup).rglob(self.unit)
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

"""The unit that is shipped, as a service of the lab, and what a test asks of it and of its manager."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from harness import until
from session_probe import SessionProbe
from systemd_lab import SystemdLab
from wire import Hangup, Wire

from clisup.host.process import cgroups
from tests.fakecli import COMMAND as FAKE_CLI

SHIPPED = Path(__file__).resolve().parents[2] / "systemd"
COMMAND = ".local/share/clisup/bin/clisup"  # below the home, as the user's unit says
CONFIG = (
    f'[daemon]\non_stop = "kill"\n[backends.demo]\ncommand = {json.dumps(FAKE_CLI)}\ntimeouts = {{term_grace = 1}}\n'
)
# What a machine of tests may not let us make is left out, and the checkout, its python and the lab are let in. All else of the
# system's unit is as it is shipped.
KEPT = (sys.base_prefix, sys.prefix, str(SHIPPED.parent))
PLACES = f"PrivateDevices=no\nBindReadOnlyPaths={' '.join(KEPT)}\n"


class Kind(NamedTuple):
    """A service of the lab: whose manager, and for whom. Without D-Bus in the lab only root can ask the system's for its jobs."""

    manager: str
    unit: str
    home: str
    user: str


KINDS = {
    "user": Kind("user", "clisup.service", "home", "root"),
    "system": Kind("system", "clisup@root.service", "home", "root"),
    "nobody": Kind("system", "clisup@nobody.service", "nobody", "nobody"),
}


def units() -> dict[str, str]:
    """What both managers find: the shipped files, word for word."""
    return {file.name: file.read_text() for file in SHIPPED.iterdir()}


def install(lab: SystemdLab) -> None:
    """The command where the units look for it, and a configuration whose stop would end every turn at once."""
    (lab.root / "work").mkdir()
    (lab.root / "work").chmod(0o755)
    command = write_command(lab.root / "bin" / "clisup")
    write_command(lab.home / COMMAND)
    drop_in(lab, "system", "clisup-tmp@.service", "PrivateDevices=no\n")
    for name, kind in KINDS.items():
        home = lab.root / kind.home
        home.mkdir(mode=0o700, exist_ok=True)
        write_config(home, CONFIG)
        extra = ""
        if kind.manager == "system":
            execs = f"ExecStart=\nExecStart={command} serve\nExecReload=\nExecReload={command} daemon restart\n"
            extra = f"Environment=HOME={home}\nBindPaths={lab.root}\n{PLACES}{execs}"
        for path in (home, *home.rglob("*")) if kind.user != "root" else ():
            shutil.chown(path, kind.user)
        drop_in(lab, kind.manager, kind.unit, f"StandardError=append:{lab.root}/{name}.log\n{extra}")
    reload_units(lab)


def write_command(path: Path) -> Path:
    """A `clisup` of this checkout."""
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m clisup "$@"\n')
    path.chmod(0o755)
    return path


def write_config(home: Path, text: str) -> None:
    """The configuration that a daemon of this home reads at its next start."""
    config = home / ".config" / "clisup" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)


def drop_in(lab: SystemdLab, manager: str, unit: str, text: str, name: str = "lab") -> Path:
    """A drop-in for a unit's [Service], or [Socket]; `reload_units` tells systemd."""
    file = lab.root / manager / f"{unit}.d" / f"{name}.conf"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"[{'Socket' if unit.endswith('.socket') else 'Service'}]\n{text}")
    return file


def reload_units(lab: SystemdLab) -> None:
    for manager in ("--system", "--user"):
        lab.systemctl(manager, "daemon-reload")


class Service:
    """As `Harness`, but it is systemd that starts the daemon and ends it."""

    def __init__(self, lab: SystemdLab, name: str) -> None:
        kind = KINDS[name]
        self.lab, self.kind, self.manager = lab, kind, f"--{kind.manager}"
        self.unit, self.home = kind.unit, lab.root / kind.home
        self.socket_unit = self.unit.replace(".service", ".socket")
        self.state = self.home / ".local" / "state" / "clisup"
        place = lab.run / "clisup" if name == "user" else lab.root / "clisup" / kind.user
        self.socket = str(place / "clisup.sock")
        self.log = lab.root / f"{name}.log"
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
        """The daemon; its socket stays with systemd."""
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
        done = self.lab.inside("env", f"CLISUP_SOCKET={self.socket}", self.lab.home / COMMAND, *words)
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
        self.hang_up()  # of a daemon that may be gone
        result = self.call("session/new", backend="demo", cwd=str(self.lab.root / "work"))
        return SessionProbe(self, result["session_id"])  # type: ignore[arg-type]  # it asks for no more than this

    def hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

"""Commands to a service manager through `systemctl`: one at a time, each with a time limit.

The commands get only the environment that leads to the manager.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from clisup.errors import WorldError

__all__ = ["ServiceManager"]

ASK_LIMIT_S = 10.0
ORDER_LIMIT_S = 600.0  # a stop waits for `drain_s`, and an operator may set a long one
_PASSED = (
    "PATH",
    "HOME",
    "USER",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
)
_ELSE = "where there is no systemd, run `clisup serve` under the supervisor that you have"


class ServiceManager:
    """The user's own manager, or the system's."""

    def __init__(self, env: Mapping[str, str], *, user: bool) -> None:
        self.user = user
        self._env = {name: env[name] for name in _PASSED if name in env} | {"LC_ALL": "C", "SYSTEMD_PAGER": ""}
        self._program = shutil.which("systemctl", path=env.get("PATH", os.defpath))

    def words(self, *words: str) -> str:
        """Return the command as a user would type it."""
        return " ".join(("systemctl", *(("--user",) if self.user else ()), *words))

    def check(self) -> None:
        """Raise `WorldError(service_manager)` if no manager answers."""
        code, _, said = self._run(ASK_LIMIT_S, "show", "--property=Version")
        if code == 0:
            return
        whose = "your own systemd manager" if self.user else "the system's systemd"
        hint = (
            "log in as that user itself (ssh, a console, machinectl shell): su and sudo start no manager"
            if self.user
            else _ELSE
        )
        raise WorldError(
            f"cannot change units of systemd, because {whose} does not answer ({said or 'it says nothing'})",
            kind="service_manager",
            hint=hint,
        )

    def ask(self, *words: str) -> str:
        """Return the answer on stdout, or "" if the manager does not answer."""
        return self._run(ASK_LIMIT_S, *words)[1]

    def order(self, *words: str) -> None:
        """Carry out a command. Raises `WorldError(service_manager)` with the manager's message if it refuses."""
        code, _, said = self._run(ORDER_LIMIT_S, *words)
        if code != 0:
            raise WorldError(
                f"cannot carry out `{self.words(*words)}`, because it says: {said or f'status {code}'}",
                kind="service_manager",
                hint="its log says more: journalctl" + (" --user" if self.user else "") + " -e -u 'clisup*'",
            )

    def _run(self, limit_s: float, *words: str) -> tuple[int, str, str]:
        if self._program is None:
            raise WorldError(
                "cannot change units of systemd, because there is no systemctl here", kind="service_manager", hint=_ELSE
            )
        command = [self._program, *(["--user"] if self.user else []), *words]
        try:
            done = subprocess.run(
                command, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, "", f"no answer within {limit_s:g} s"
        except OSError as error:
            return 1, "", error.strerror or "it cannot be started"
        said = done.stderr.strip().splitlines()
        return done.returncode, done.stdout.strip(), said[0] if said else ""

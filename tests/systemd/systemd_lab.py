"""A real systemd of one's own, system and user manager, in namespaces: nothing of it reaches the machine, nothing stays.

It sees the machine's files read-only, its own directory, a /run and an /etc/systemd/system of its own and one cgroup of v2.
Its end is SIGKILL to pid 1 of its pid namespace, which takes everybody with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Self

import pytest

from clisup.host.process import cgroups

SYSTEMD = "/usr/lib/systemd/systemd"
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "systemctl")
BOOT_LIMIT_S = 40.0
ASK_LIMIT_S = 120.0

ENTER = """\
#!/bin/sh
# $1: the lab's cgroup. Everything here ends with the test, whichever way that ends.
echo $$ > "$1/cgroup.procs" &&
exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --uts --ipc --cgroup "$2/init"
"""
INIT = """\
#!/bin/sh
set -e
mount --bind {root} {root}
mount -o remount,bind,ro /
mount -t tmpfs -o mode=755 tmpfs /run
# A /tmp that can be written, which PrivateTmp= needs; what is ours below the machine's own is let in.
for path in {kept}; do mkdir -p /run/kept$path; mount --rbind $path /run/kept$path; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
for path in {kept}; do mkdir -p $path; mount --rbind /run/kept$path $path; umount -l /run/kept$path; done
mkdir /run/clisup
mount --bind {root}/clisup /run/clisup
mount --bind {root}/etc /etc/systemd/system
umount -R -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# As on any machine that systemd has booted; among the lab's own mounts alone. Credentials come into a unit's directory by it.
mount --make-rshared /
exec env -i container=lab PATH="$PATH" HOME={root}/home SYSTEMD_UNIT_PATH={root}/system:/etc/systemd/system \\
  {systemd} --system --log-target=console --show-status=no
"""
TARGET = "[Unit]\nDescription=%n of a lab\nDefaultDependencies=no\n"
USER_MANAGER = """\
[Service]
Type=notify
User=%i
ExecStart={systemd} --user --log-target=console
Environment=HOME={root}/home XDG_RUNTIME_DIR={root}/run SYSTEMD_UNIT_PATH={root}/user:{root}/home/.config/systemd/user
Slice=user-%i.slice
Delegate=yes
KillMode=mixed
"""


class LabRefused(Exception):
    """This machine lets no systemd run in namespaces; the text says why."""


class SystemdLab:
    """`units` are put where both managers look for them. `home` and `run` are $HOME and $XDG_RUNTIME_DIR of the user manager.

    `kept` are paths that have to be seen in the lab wherever they are; of the machine's /tmp nothing else is.
    """

    def __init__(self, units: dict[str, str], until: Callable[..., object], kept: Sequence[str] = ()) -> None:
        self._until = until
        self.root = Path(tempfile.mkdtemp(prefix="sd", dir="/tmp"))
        self.home, self.run, self.log = self.root / "home", self.root / "run", self.root / "log"
        self.cgroup = ""
        self._process: subprocess.Popen[bytes] | None = None
        self.root.chmod(0o711)  # services of other users have their sockets and homes in it
        for directory in (self.home, self.run, self.root / "system", self.root / "user"):
            directory.mkdir(mode=0o700)
        for directory in (self.root / "clisup", self.root / "etc"):
            directory.mkdir(mode=0o755)
        for manager in ("system", "user"):
            for name in ("default", "basic", "sysinit", "shutdown", "sockets", "multi-user"):
                (self.root / manager / f"{name}.target").write_text(TARGET)
            for name, text in units.items():
                (self.root / manager / name).write_text(text)
        (self.root / "system" / "user@.service").write_text(USER_MANAGER.format(root=self.root, systemd=SYSTEMD))
        kept = " ".join(
            dict.fromkeys(path for path in (str(self.root), *kept) if path.startswith(("/tmp/", "/var/tmp/")))
        )
        init = INIT.format(root=self.root, systemd=SYSTEMD, kept=kept)
        for name, text in (("enter", ENTER), ("init", init)):
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o700)

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _boot(self) -> None:
        """Up to a running user manager. Raises `LabRefused` where that cannot be."""
        home = cgroups.CgroupHome.find().path
        if home is None:
            raise LabRefused("no cgroup of v2 can be made here")
        self.cgroup = os.path.join(home, self.root.name)
        os.mkdir(self.cgroup)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [self.root / "enter", self.cgroup, self.root],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._until(self._booted, "systemd does not come up", BOOT_LIMIT_S)
            self.systemctl("start", f"user@{os.getuid()}.service")
            self._until(lambda: self._is_up("--user"), "the user manager does not come up", BOOT_LIMIT_S)
        except (AssertionError, subprocess.SubprocessError) as error:
            raise LabRefused(f"{error}; {self.said()}") from None

    def _booted(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise LabRefused(f"namespaces are refused: {self.said()}")
        return self._is_up()

    def _is_up(self, *manager: str) -> bool:
        return self._pid_1() is not None and self._ask(*manager, "is-active", "default.target") == "active"

    def said(self) -> str:
        """The last words of the lab: mount's and systemd's."""
        return textwrap.shorten(self.log.read_text(errors="replace")[-600:], 500) if self.log.exists() else ""

    def _pid_1(self) -> int | None:
        """As the machine sees it: the child of unshare."""
        assert self._process is not None
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def inside(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command in the lab, as a process that no unit has started."""
        pid = self._pid_1()
        assert pid is not None, f"the lab is down: {self.said()}"
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.run)}
        argv = ["nsenter", "-t", str(pid), "-m", "-p", "-u", "-i", "-C", *map(str, command)]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)

    def _ask(self, *words: str) -> str:
        return self.inside("systemctl", *words).stdout.strip()

    def systemctl(self, *words: str) -> str:
        """What it says on stdout; a refusal is a failure of the test."""
        done = self.inside("systemctl", *words)
        assert done.returncode == 0, f"systemctl {words}: {done.stderr} {self.said()}"
        return done.stdout.strip()

    def close(self) -> None:
        """End it, and prove that no process, no cgroup and no file of it is left. A second call does nothing."""
        if self._process is not None:
            if (pid := self._pid_1()) is not None:
                os.kill(pid, signal.SIGKILL)  # our child's child: it is not reaped while unshare waits for it
            self._process.kill()
            self._process.wait()
            self._process = None
        if os.path.isdir(self.cgroup):
            cgroups.kill(self.cgroup)
            self._until(lambda: cgroups.remove(self.cgroup), f"{self.cgroup} is not empty", BOOT_LIMIT_S)
        shutil.rmtree(self.root, ignore_errors=True)
        mounts = Path("/proc/self/mountinfo").read_text()
        assert str(self.root) not in mounts, "a mount of the lab has got out"
        assert not self.root.exists(), f"{self.root} cannot be removed"


def needed(reason: str) -> NoReturn:
    """What the tests need and this machine lacks. CI has what can be installed; no machine has to let one make namespaces."""
    if os.environ.get("CLISUP_CI") and "not installed" in reason:
        pytest.fail(reason)
    pytest.skip(reason)


def refusal() -> str | None:
    """Why no lab can be tried here at all; None where it can."""
    if os.geteuid() != 0:
        return "only root can give systemd a cgroup and namespaces"
    if not os.access(SYSTEMD, os.X_OK):
        return "systemd is not installed here"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{', '.join(missing)} not installed here" if missing else None

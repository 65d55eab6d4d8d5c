"""The shipped units as systemd's own tools judge them, without a running systemd; and what they must and must not say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from systemd_lab import needed

from clisup.host.systemd.units import path_line, unit_text

SHIPPED = Path(__file__).resolve().parents[2] / "systemd"
NAMES = sorted(file.name for file in SHIPPED.iterdir())
SYSTEM = [name for name in NAMES if "@" in name]
INSTANCE = "alice"
THRESHOLD = 30  # of 100: systemd-analyze calls it an exposure of 3.0
FORBIDDEN = {
    # directive: what it would break. The comments of the unit give the reasons.
    "MemoryDenyWriteExecute": "node and bun",
    "ProtectProc": "sweeps",
    "ProcSubset": "psutil",
    "RestrictNamespaces": "bubblewrap",
    "ProtectKernelTunables": "bubblewrap's /proc",
    "ProtectKernelLogs": "bubblewrap's /proc",
    "ProtectHostname": "bubblewrap",
    "ProtectControlGroups": "a cgroup for each run",
    "PrivateUsers": "adoption",
    "PrivateNetwork": "models",
    "MemoryMax": "turns of others: it counts for the whole unit",
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The units as they are installed, with a command that is there, and the template's as instances."""
    if shutil.which("systemd-analyze") is None:
        needed("systemd-analyze is not installed here")
    for name in NAMES:
        text = unit_text((SHIPPED / name).read_text(), "/bin/true", "0")
        (tmp_path / name.replace("@", f"@{INSTANCE}")).write_text(text)
    return tmp_path


def analyze(files: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(files), "SYSTEMD_PAGER": "", "SYSTEMD_UNIT_PATH": f"{files}:"}
    return subprocess.run(["systemd-analyze", *words], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_systemd_takes_every_unit_without_a_word(files: Path, name: str) -> None:
    whose = [] if name in SYSTEM else ["--user"]
    done = analyze(files, "verify", *whose, str(files / name.replace("@", f"@{INSTANCE}")))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.parametrize("name", [name for name in SYSTEM if name.endswith(".service")])
def test_the_systems_services_expose_little(files: Path, name: str) -> None:
    file = str(files / name.replace("@", f"@{INSTANCE}"))
    done = analyze(files, "security", "--offline=true", f"--threshold={THRESHOLD}", "--no-pager", file)
    assert done.returncode == 0, done.stdout[-300:]
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["clisup.service", "clisup@.service"])
def test_turns_outlive_the_daemon_and_the_daemon_outlives_a_turn(name: str) -> None:
    said = settings(name)
    assert said["KillMode"] == ["process"] and said["Delegate"] == ["yes"] and said["OOMPolicy"] == ["continue"]
    assert said["Type"] == ["notify"] and "WatchdogSec" in said
    assert said["RestartPreventExitStatus"] == ["78"] and said["Restart"] == ["on-failure"]
    assert not any("--log-format" in line for line in said["ExecStart"])


@pytest.mark.parametrize("name", ["clisup.service", "clisup@.service"])
def test_nothing_stands_there_that_breaks_a_cli_or_its_tools(name: str) -> None:
    assert not settings(name).keys() & FORBIDDEN.keys()
    groups = " ".join(settings(name).get("SystemCallFilter", [])).split()
    assert not {"@mount", "@privileged", "~@mount", "~@privileged"} & set(groups)


def test_what_is_not_there_has_its_reason() -> None:
    text = (SHIPPED / "clisup@.service").read_text().split("Directives that this unit leaves out")[1]
    for name in set(FORBIDDEN) - {"MemoryMax"}:
        assert name in text, name


def test_nothing_enables_a_controller_below_the_unit() -> None:
    """With those and keepers alive systemd 252 cannot start the service again."""
    found = [path for path in (SHIPPED.parent / "clisup").rglob("*.py") if "subtree_control" in path.read_text()]
    assert not found


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".socket")])
def test_the_sockets_are_their_owners_alone(name: str) -> None:
    said = settings(name)
    assert said["SocketMode"] == ["0600"]
    assert said.get("DirectoryMode") == ["0700"] or "-m 0700 -o %i" in said["ExecStartPre"][0]


def settings(name: str) -> dict[str, list[str]]:
    """Key -> its values, in order."""
    said: dict[str, list[str]] = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", (SHIPPED / name).read_text(), re.MULTILINE):
        said.setdefault(key, []).append(value)
    return said


def test_the_path_of_a_unit_is_quoted() -> None:
    assert path_line('/a b:/c%d:/e"f\\g') == 'Environment="PATH=/a b:/c%%d:/e\\"f\\\\g"'

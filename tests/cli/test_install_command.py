"""`clisup install` and `uninstall` where no systemd is, or the wrong user asks: a reason and a way on, and nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="what sudo and root may do can be tried by root alone")


def clisup(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], "HOME": str(home), **env}
    return subprocess.run(
        [sys.executable, "-m", "clisup", *words], env=given, capture_output=True, text=True, check=False
    )


@pytest.fixture
def executable(tmp_path: Path) -> str:
    file = tmp_path / "clisup"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return str(file)


def test_a_dry_run_needs_no_systemd_and_writes_nothing(tmp_path: Path, executable: str) -> None:
    done = clisup(tmp_path, "install", "--user", "--dry-run", "--executable", executable, PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert f"would write {tmp_path}/.config/systemd/user/clisup.service\n" in done.stdout
    assert "would run systemctl --user enable clisup.socket clisup.service\n" in done.stdout
    assert not (tmp_path / ".config").exists()


@pytest.mark.parametrize("door", ["web", "gateway"])
def test_the_unit_of_a_door_is_installed_when_asked_for_and_from_then_on(
    tmp_path: Path, executable: str, door: str
) -> None:
    words = ("install", "--user", "--dry-run", "--executable", executable)
    unit = tmp_path / ".config" / "systemd" / "user" / f"clisup-{door}.service"
    assert f"clisup-{door}" not in clisup(tmp_path, *words).stdout
    done = clisup(tmp_path, *words, f"--{door}", "--now")
    assert f"would write {unit}\n" in done.stdout
    assert f"systemctl --user enable clisup.socket clisup.service clisup-{door}.service\n" in done.stdout
    assert f"systemctl --user start clisup.service clisup-{door}.service\n" in done.stdout
    refused = clisup(tmp_path, "install", "--system", "--for", "root", f"--{door}")
    assert (refused.returncode, "a unit of a user's manager" in refused.stderr) == (2, True)
    unit.parent.mkdir(parents=True)
    unit.write_text((Path(__file__).resolve().parents[2] / "systemd" / f"clisup-{door}.service").read_text())
    assert f"would write {unit}  (was from another clisup)\n" in clisup(tmp_path, *words).stdout
    removed = clisup(tmp_path, "uninstall", "--user", "--dry-run").stdout
    assert f"would remove {unit}\n" in removed and f"clisup.service clisup-{door}.service\n" in removed


def test_the_unit_gets_the_path_of_the_shell_and_both_are_printed(tmp_path: Path, executable: str) -> None:
    nvm, loose = tmp_path / "my %nvm" / "bin", tmp_path / "loose"
    for directory in (nvm, loose):
        directory.mkdir(parents=True)
    loose.chmod(0o777)
    claude = nvm / "claude"
    claude.write_text("#!/bin/sh\n")
    claude.chmod(0o755)
    words = ("install", "--user", "--dry-run", "--executable", executable)
    path = f"relative:{nvm}::{loose}:/usr/bin:{nvm}:/nonexistent"
    done = clisup(tmp_path, *words, PATH=path)
    assert f"PATH of the daemon: {nvm}:/usr/bin\n" in done.stdout
    assert f"  claude  {claude}\n" in done.stdout and "  qwen    not found on this PATH\n" in done.stdout
    found = json.loads(clisup(tmp_path, *words, "--json", PATH=path).stdout)
    assert (found["search_path"], found["clis"]["claude"]) == (f"{nvm}:/usr/bin", str(claude))


def test_without_systemctl_it_says_what_to_do_instead(tmp_path: Path, executable: str) -> None:
    done = clisup(tmp_path, "install", "--user", "--executable", executable, PATH="/nonexistent")
    assert done.returncode == 69
    assert "there is no systemctl here" in done.stderr
    assert "run `clisup serve` under the supervisor that you have" in done.stderr
    assert not (tmp_path / ".config").exists()


def test_a_manager_that_does_not_answer_is_told_with_its_own_words(tmp_path: Path, executable: str) -> None:
    fake = tmp_path / "bin" / "systemctl"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
    fake.chmod(0o755)
    done = clisup(tmp_path, "install", "--user", "--executable", executable, PATH=str(fake.parent))
    assert done.returncode == 69
    assert "(Failed to connect to bus: No medium found)" in done.stderr and "su and sudo" in done.stderr
    assert not (tmp_path / ".config").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "cannot tell which manager is meant"),
        (["--user", "--system"], "cannot tell which manager is meant"),
        (["--user", "--for", "alice"], "cannot make a user's unit for another user"),
        (["--system", "--for", "nobody-of-this-name"], "there is no such user"),
        (["--system"], "which user the daemon is for"),
    ],
)
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_what_cannot_be_meant_is_a_usage_error(tmp_path: Path, command: str, words: list[str], why: str) -> None:
    done = clisup(tmp_path, command, *words)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert "hint: " in done.stderr


def test_a_user_without_a_home_has_no_daemon(tmp_path: Path) -> None:
    done = clisup(tmp_path, "install", "--system", "--for", "nobody", "--dry-run")
    assert done.returncode == 2
    assert "does not exist" in done.stderr


@ROOT_ONLY
def test_sudo_is_no_way_to_a_users_unit(tmp_path: Path) -> None:
    done = clisup(tmp_path, "install", "--user", SUDO_USER="alice")
    assert done.returncode == 2
    assert "sudo clisup install --system --for alice" in done.stderr


@ROOT_ONLY
@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--user"], {"PATH": "/nonexistent"}),
        (["--user"], {"SUDO_USER": "alice"}),
        (["--system", "--for", "nobody-of-this-name"], {}),
    ],
)
def test_what_cannot_be_uninstalled_is_not_told_as_an_installation(
    tmp_path: Path, words: list[str], env: dict[str, str]
) -> None:
    said = clisup(tmp_path, "uninstall", *words, **env).stderr
    assert said.startswith("clisup: cannot ") and "cannot install" not in said
    assert "useradd" not in said and "clisup install" not in said


@ROOT_ONLY
def test_a_service_of_the_system_gets_a_path_with_the_users_own_directories(tmp_path: Path, executable: str) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for directory in (mine, theirs):
        directory.mkdir()
    os.chown(theirs, 1234, 1234)
    claude = mine / "claude"
    claude.write_text("#!/bin/sh\n")
    claude.chmod(0o755)
    words = ("install", "--system", "--for", "daemon", "--dry-run", "--executable", executable)
    path = f"{theirs}:/root:/root/bin:{mine}:/usr/bin"
    done = clisup(tmp_path, *words, PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"PATH of the daemon: {mine}:/usr/bin\n" in done.stdout
    assert "would write /etc/systemd/system/clisup@daemon.service.d/clisup-path.conf\n" in done.stdout
    assert f"  claude  {claude}\n" in done.stdout and "  qwen    not found on this PATH\n" in done.stdout
    assert "-> a CLI that only daemon's shell finds" in done.stdout


@ROOT_ONLY
def test_a_service_of_the_system_does_not_start_what_its_sandbox_hides(tmp_path: Path) -> None:
    done = clisup(tmp_path, "install", "--system", "--for", "daemon", "--executable", "/root/bin/clisup", "--dry-run")
    assert done.returncode == 2
    assert "not the absolute path of an executable" in done.stderr
    relative = clisup(tmp_path, "install", "--user", "--executable", "bin/clisup", "--dry-run")
    assert relative.returncode == 2


def test_the_steps_are_there_for_programs(tmp_path: Path, executable: str) -> None:
    done = clisup(tmp_path, "install", "--user", "--dry-run", "--now", "--json", "--executable", executable)
    told = json.loads(done.stdout)
    assert told["dry_run"] is True
    assert [step["action"] for step in told["steps"]] == ["write", "write", "run", "run", "run"]
    assert all(step.keys() == {"action", "target", "detail"} for step in told["steps"])


def test_with_nothing_installed_there_is_nothing_to_remove(tmp_path: Path) -> None:
    done = clisup(tmp_path, "uninstall", "--user", "--dry-run")
    assert (done.returncode, "it has no unit of clisup" in done.stdout) == (0, True)


def test_what_was_edited_is_not_written_over(tmp_path: Path, executable: str) -> None:
    unit = tmp_path / ".config" / "systemd" / "user" / "clisup.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/mine\n")
    done = clisup(tmp_path, "install", "--user", "--dry-run", "--executable", executable)
    assert done.returncode == 2
    assert "it was edited after its installation" in done.stderr
    forced = clisup(tmp_path, "install", "--user", "--dry-run", "--force", "--executable", executable)
    assert "(was edited; --force)" in forced.stdout
    assert unit.read_text() == "[Service]\nExecStart=/mine\n"

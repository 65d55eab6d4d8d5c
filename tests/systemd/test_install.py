"""`clisup install` and `uninstall` with a real systemd: what they say, what they leave, and that doing it twice does no harm."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import until
from service import KEPT, PLACES, drop_in, write_command
from systemd_lab import LabRefused, SystemdLab, needed, refusal
from wire import Hangup, Wire

ALICE = "daemon"  # a user that every machine has, whose home is not below /home


class Installer:
    """A lab in which nothing is installed, and the command."""

    def __init__(self, lab: SystemdLab) -> None:
        self.lab = lab
        self.command = write_command(lab.root / "bin" / "clisup")
        self.user_units = lab.home / ".config" / "systemd" / "user"
        self.system_units = lab.root / "etc"

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """stdout and stderr."""
        done = self.lab.inside(self.command, *words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout, done.stderr

    def install(self, *words: str) -> dict[str, Any]:
        said, _ = self.run("install", *words, "--executable", str(self.command), "--json")
        return dict(json.loads(said))

    def state(self, manager: str, unit: str) -> tuple[str, str]:
        """(enabled?, active?)"""
        ask = [self.lab.inside("systemctl", manager, word, unit).stdout.strip() for word in ("is-enabled", "is-active")]
        return ask[0], ask[1]

    def server(self, socket: Path) -> dict[str, Any] | None:
        try:
            with Wire(str(socket)) as wire:
                return dict(wire.call("initialize")["server"])
        except (OSError, Hangup):
            return None


@pytest.fixture(scope="module")
def installer() -> Iterator[Installer]:
    if (reason := refusal()) is not None:
        needed(reason)
    lab = SystemdLab({}, until, KEPT)
    try:
        with lab:
            yield Installer(lab)
    except LabRefused as error:
        needed(f"systemd cannot run in namespaces here: {error}")


def actions(plan: dict[str, Any]) -> list[str]:
    return [f"{step['action']} {step['target'].rsplit('/', 1)[-1]}" for step in plan["steps"]]


def test_a_users_service_from_nothing_to_serving_and_back(installer: Installer) -> None:
    told = installer.install("--user", "--now", "--dry-run")
    assert told["dry_run"] is True
    assert not installer.user_units.exists(), "it was only asked"
    done = installer.install("--user", "--now")
    assert done["steps"] == told["steps"]
    assert done["steps"][-1]["target"] == "systemctl --user start clisup.service"
    assert any("enable-linger" in line for line in done["advice"])
    for unit in ("clisup.service", "clisup.socket"):
        assert installer.state("--user", unit) == ("enabled", "active")
    socket = installer.lab.run / "clisup" / "clisup.sock"
    server = installer.server(socket)
    assert server is not None and server["activated"] is True

    again = installer.install("--user", "--now")
    assert {step["action"] for step in again["steps"]} == {"keep", "run"}
    assert installer.server(socket) == server, "what was as it shall be was left alone"

    said, _ = installer.run("uninstall", "--user")
    assert "remove " in said and "stay in the state directory" in said
    assert installer.server(socket) is None
    assert [path.name for path in installer.user_units.rglob("*") if path.is_file()] == []
    assert (installer.lab.home / ".local/state/clisup").is_dir()
    assert "it has no unit of clisup" in installer.run("uninstall", "--user")[0]


def test_clisup_start_starts_the_unit_that_is_installed(installer: Installer) -> None:
    plan = installer.install("--user")
    unit = (installer.user_units / "clisup.service").read_text()
    assert f'\nEnvironment="PATH={plan["search_path"]}"\n' in unit
    assert installer.state("--user", "clisup.service") == ("enabled", "inactive")
    found = json.loads(installer.run("start", "--json")[0])
    assert (found["unit"], found["started"]) == ("clisup.service", True)
    assert installer.state("--user", "clisup.service") == ("enabled", "active")
    server = installer.server(Path(found["socket"]))
    assert server is not None and server["activated"] and server["search_path"] == plan["search_path"]
    assert json.loads(installer.run("start", "--json")[0])["started"] is False
    installer.run("uninstall", "--user")


def test_an_upgrade_restarts_with_the_new_unit_and_an_edit_is_not_lost(installer: Installer) -> None:
    installer.install("--user", "--now")
    socket = installer.lab.run / "clisup" / "clisup.sock"
    before = installer.server(socket)
    moved = write_command(installer.lab.root / "new" / "bin" / "clisup")
    said, _ = installer.run("install", "--user", "--executable", str(moved), "--now")
    assert "was from another clisup" in said
    assert "run systemctl --user restart clisup.service" in said
    after = installer.server(socket)
    assert before is not None and after is not None and after["pid"] != before["pid"]

    unit = installer.user_units / "clisup.service"
    unit.write_text(unit.read_text() + "Nice=5\n")
    for words in (["install", "--executable", str(moved)], ["uninstall"]):
        _, error = installer.run(*words, "--user", code=2)
        assert "it was edited after its installation" in error
    assert "Nice=5" in unit.read_text()
    assert "was edited; --force" in installer.run("install", "--user", "--executable", str(moved), "--force")[0]
    assert "Nice=5" not in unit.read_text()
    installer.run("uninstall", "--user")


def test_a_service_of_the_system_for_one_user_beside_another(installer: Installer) -> None:
    alice = pwd.getpwnam(ALICE)
    for user in (ALICE, "root"):
        for unit in (f"clisup@{user}.service", "clisup-tmp@.service"):
            drop_in(installer.lab, "system", unit, "PrivateDevices=no\n", "lab")
        places = f"Environment=HOME={installer.lab.root}/{user}\nBindPaths={installer.lab.root}\n{PLACES}"
        drop_in(installer.lab, "system", f"clisup@{user}.service", places, "lab")
        (installer.lab.root / user).mkdir(mode=0o700, exist_ok=True)
    os.chown(installer.lab.root / ALICE, alice.pw_uid, alice.pw_uid)
    plan = installer.install("--system", "--for", ALICE, "--now")
    assert "write clisup-home.conf" in actions(plan), "its home is not where the unit takes it to be"
    socket = installer.lab.root / "clisup" / ALICE / "clisup.sock"
    server = installer.server(socket)
    assert server is not None and server["activated"] is True
    assert socket.lstat().st_uid == alice.pw_uid
    assert server["search_path"] == plan["search_path"]
    assert "write clisup-path.conf" in actions(plan)
    installer.install("--system", "--for", "root")

    said, _ = installer.run("uninstall", "--system", "--for", ALICE)
    assert "also for root" in said
    assert installer.server(socket) is None
    assert (installer.system_units / "clisup@.service").exists()
    installer.run("uninstall", "--system", "--for", "root")
    assert not [path for path in installer.system_units.rglob("*") if path.is_file()]


def test_a_daemon_that_was_started_by_hand_is_in_the_way_and_named(installer: Installer) -> None:
    starter = installer.lab.root / "start"
    starter.write_text(f"#!/bin/sh\nsetsid {installer.command} serve >/dev/null 2>&1 </dev/null &\n")
    starter.chmod(0o755)
    installer.lab.inside(starter)
    socket = installer.lab.run / "clisup" / "clisup.sock"
    server = until(lambda: installer.server(socket), "it does not start")
    _, error = installer.run("install", "--user", "--now", code=75)
    assert f"pid {server['pid']} already serves" in error and "clisup stop --mode detach" in error
    assert not (installer.user_units / "clisup.service").exists()
    installer.run("stop")

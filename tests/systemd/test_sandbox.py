"""clisup@.service for an unprivileged user: what the CLIs and their tools need works in its sandbox, and the rest does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import until
from service import Service
from session_probe import SessionProbe

pytestmark = pytest.mark.parametrize("running", ["nobody"], indirect=True, scope="module")


def says(session: SessionProbe, command: str) -> str:
    """What a tool's command prints, and its exit code."""
    turn = session.ask(f"@bash {command}; echo code $?")["turn_id"]
    return str(session.events("tool_result", turn_id=turn)[-1]["content"])


@pytest.mark.parametrize("sandbox", [
    "unshare -Ur true",
    "unshare -Urn true",  # and its loopback, by netlink
    "unshare -Urpf --mount-proc true",  # as bubblewrap's --proc /proc
    "unshare -Urm sh -c 'mount -t tmpfs none /mnt && touch /mnt/x'",
    "unshare -Uru hostname sandbox",
])  # fmt: skip
def test_a_tool_can_put_a_command_into_namespaces_of_its_own(service: Service, sandbox: str) -> None:
    assert "code 0" in says(service.new(), sandbox)


def test_code_that_is_made_at_run_time_runs(service: Service) -> None:
    """As the engines of node and bun do it."""
    node = shutil.which("node")
    script = "import mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(b'x'); print('made')"
    assert "made" in says(service.new(), f'python3 -c "{script}"')
    if node is not None:
        assert "1764" in says(
            service.new(), f"{node} -e 'let n = 0; for (let i = 0; i < 1764; i++) n++; console.log(n)'"
        )


def test_a_run_has_a_cgroup_and_no_controller_is_enabled_for_it(service: Service) -> None:
    session = service.new()
    session.prompt("a word\n@stall")
    cgroup = session.await_event("process_started")["cgroup"]
    assert cgroup and service.unit in cgroup
    for path in Path(service.lab.cgroup).rglob(f"{service.unit}/**/cgroup.subtree_control"):
        assert path.read_text().strip() == "", path
    service.systemctl("kill", "--signal=KILL", "--kill-who=main")  # keepers alive in it: it can be started again
    service.await_daemon()
    assert session.get()["state"] == "running"
    session.call("interrupt", mode="kill")


@pytest.mark.parametrize(("command", "said"), [
    ("touch /usr/x", "Read-only file system"),
    ("touch /srv/x", "Read-only file system"),
    ("ls -A /home /root | grep -v '^$'", "/home:"),
    ("grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"),
    ("grep CapBnd /proc/self/status", "CapBnd:\t0000000000000000"),
])  # fmt: skip
def test_what_is_not_its_own_is_shut_away(service: Service, command: str, said: str) -> None:
    assert said in says(service.new(), command)


def test_the_temporary_directory_is_its_own_and_outlives_a_restart(service: Service) -> None:
    assert "code 0" in says(service.new(), "touch /tmp/left-here")
    assert not Path("/tmp/left-here").exists()
    before = service.main_pid
    service.systemctl("restart")
    until(lambda: service.main_pid not in (0, before), "it is not started again")
    service.await_daemon()
    assert "left-here" in says(service.new(), "ls /tmp")

"""systemd holds the socket: who connects starts the daemon, waits while it is away, and is never cut off."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
from harness import until
from service import CONFIG, Service, drop_in, reload_units, write_config
from turns import RunningTurn
from wire import Wire

UNDER_USER = pytest.mark.parametrize("running", ["user"], indirect=True, scope="module")
FOR_OTHERS = pytest.mark.parametrize("running", ["user", "nobody"], indirect=True, scope="module")
SYSTEMDS_OWN = {
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "CREDENTIALS_DIRECTORY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
}


@FOR_OTHERS
def test_the_first_client_starts_the_daemon(service: Service) -> None:
    service.stop()
    assert service.show("ActiveState") == {"ActiveState": "inactive"}
    with Wire(service.socket) as wire:
        server = wire.call("initialize")["server"]
    assert server["activated"] is True
    assert server["pid"] == service.main_pid


@FOR_OTHERS
def test_nobody_else_may_connect(service: Service) -> None:
    node, directory = Path(service.socket).lstat(), Path(service.socket).parent.stat()
    assert stat.S_IMODE(node.st_mode) == 0o600
    assert stat.S_IMODE(directory.st_mode) == 0o700
    assert node.st_uid == directory.st_uid == (service.home.stat().st_uid)


@UNDER_USER
def test_who_connects_to_a_daemon_that_was_killed_is_served_by_the_next_one(service: Service) -> None:
    running, before = RunningTurn(service), service.main_pid
    service.systemctl("kill", "--signal=STOP", "--kill-who=main")  # so that it cannot take who comes now
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.settimeout(60)
        waiting.connect(service.socket)
        waiting.sendall(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n')
        service.systemctl("kill", "--signal=KILL", "--kill-who=main")
        answer = waiting.recv(65536)
    assert b'"result"' in answer
    assert f'"pid":{before},'.encode() not in answer
    service.await_daemon()
    assert running.finish()["text"].endswith("the last word")


@UNDER_USER
def test_a_stop_by_the_command_keeps_the_socket_and_wakes_nobody(service: Service) -> None:
    service.clisup("daemon", "restart")  # also after that it is systemd's
    said = service.clisup("stop")
    assert "the next client starts it again" in said
    until(lambda: service.show("ActiveState") == {"ActiveState": "inactive"}, "it was woken again")
    assert Path(service.socket).is_socket()


@UNDER_USER
def test_a_daemon_that_somebody_starts_by_hand_does_not_cut_systemd_off(service: Service) -> None:
    service.stop()
    done = service.lab.inside(
        "env",
        f"CLISUP_STATE_DIR={service.lab.root}/other",
        service.lab.home / ".local/share/clisup/bin/clisup",
        "serve",
    )
    assert done.returncode == 78
    assert "another process does (systemd" in done.stderr
    with Wire(service.socket) as wire:
        assert wire.call("initialize")["server"]["pid"] == service.main_pid


@UNDER_USER
@pytest.mark.parametrize(("unit", "text", "why"), [
    ("clisup.socket", "SocketMode=0666\n", "others may connect to it (mode 666"),
    ("clisup.service", "Environment=CLISUP_SOCKET=/run/elsewhere\n", "clients connect to /run/elsewhere"),
])  # fmt: skip
def test_a_socket_that_is_no_good_is_refused_once_and_for_all(service: Service, unit: str, text: str, why: str) -> None:
    extra = drop_in(service.lab, "user", unit, text, "extra")
    service.lab.systemctl("--user", "stop", "clisup.socket")
    reload_units(service.lab)
    try:
        service.lab.inside("systemctl", "--user", "start", "clisup.service")
        until(lambda: service.show("ActiveState") == {"ActiveState": "failed"}, "it does not give up")
        assert service.show("ExecMainStatus", "NRestarts") == {"ExecMainStatus": "78", "NRestarts": "0"}
        assert why in service.said()
    finally:
        extra.unlink()
        service.lab.inside("systemctl", "--user", "stop", "clisup.socket")
        service.lab.inside("systemctl", "--user", "reset-failed")
        reload_units(service.lab)


@UNDER_USER
def test_nothing_that_systemd_gives_the_daemon_reaches_a_cli(service: Service) -> None:
    session = service.new()
    names = set(session.ask("@env-all")["text"].split())
    assert "PATH" in names
    assert not names & SYSTEMDS_OWN
    turn = session.prompt("a word\n@stall")
    session.await_event("content_delta", nth=2)
    cli = next(pid for pid in service.processes() if b"tests/fakecli" in Path(f"/proc/{pid}/cmdline").read_bytes())
    ours = {
        line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(service.socket)
    }
    held = {str(fd.readlink()) for fd in Path(f"/proc/{cli}/fd").iterdir()}
    assert ours and not held & {f"socket:[{inode}]" for inode in ours}
    session.call("interrupt", turn_id=turn, mode="kill")


@UNDER_USER
def test_a_wrong_configuration_is_tried_once(service: Service) -> None:
    service.stop()
    write_config(service.home, "[daemon]\nno_such_key = 1\n")
    try:
        service.lab.inside("systemctl", "--user", "start", "clisup.service")
        assert service.show("ActiveState", "NRestarts") == {"ActiveState": "failed", "NRestarts": "0"}
        assert "is not a known key" in service.said()
    finally:
        write_config(service.home, CONFIG)

"""docs/how-to/remote.md: a client behind a forwarded socket is served like any other, and nothing is lost when the tunnel breaks.

By a real sshd on loopback with a throw-away key where one is installed (`CLISUP_SSHD` names another), else by a relay.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from harness import Harness, until

from clisup.client.sync import Client
from tests.docs.relay import Relay

SSHD = os.environ.get("CLISUP_SSHD") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


class Tunnel(Protocol):
    def close(self) -> None: ...


class Ssh:
    """`ssh -L local:remote 127.0.0.1`, and the sshd that it goes through."""

    def __init__(self, directory: Path, local: str, remote: str) -> None:
        self._local = local
        directory.mkdir(exist_ok=True)
        if not (key := directory / "key").exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
            (directory / "authorized").write_text((directory / "key.pub").read_text())
        config = directory / "config"
        config.write_text(
            f"HostKey {key}\nAuthorizedKeysFile {directory}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
            "AuthenticationMethods publickey\nPermitRootLogin yes\nAllowStreamLocalForwarding yes\n"
        )
        config.chmod(0o600)
        Path("/run/sshd").mkdir(exist_ok=True)
        proxy = f"ProxyCommand={SSHD} -i -f {config} 2>>{directory}/log"  # no port: sshd speaks on ssh's pipes
        known = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        argv = ["ssh", "-F", "none", "-N", "-i", str(key), *known, "-o", "ExitOnForwardFailure=yes", "-o", proxy]
        self._ssh = subprocess.Popen([*argv, "-L", f"{local}:{remote}", "loopback"], stdin=subprocess.DEVNULL)
        until(lambda: Path(local).exists() or self._ssh.poll() is not None, "ssh does not forward")
        assert self._ssh.poll() is None, (directory / "log").read_text()

    def close(self) -> None:
        self._ssh.terminate()
        self._ssh.wait(30)
        Path(self._local).unlink(missing_ok=True)


@pytest.fixture(params=["relay", "sshd"])
def open_tunnel(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], Tunnel]:
    if request.param == "relay":
        return Relay
    if SSHD is None or os.getuid() != 0:
        pytest.skip("needs an sshd that can be started as root")
    return lambda local, remote: Ssh(tmp_path / "ssh", local, remote)


def test_a_client_behind_a_tunnel_is_the_user_of_its_far_end(
    serve: Callable[..., Harness], open_tunnel: Callable[[str, str], Tunnel]
) -> None:
    daemon = serve()
    local = str(daemon.root / "tunnel.sock")
    tunnel = open_tunnel(local, daemon.socket)
    assert Path(local).stat().st_mode & 0o777 == 0o600
    with Client.connect(local, name="from-afar") as client, client.open("demo", "/tmp") as session:
        assert session.prompt("hello").text == "You said: hello"
        (accepted,) = [e.event for e in session.history() if e.event.type == "prompt_accepted"]
        assert (accepted.actor.uid, accepted.actor.client) == (os.getuid(), "from-afar")
        assert (accepted.actor.pid == os.getpid()) is isinstance(tunnel, Relay)
    tunnel.close()


def test_what_the_tunnel_missed_comes_when_it_is_there_again(
    serve: Callable[..., Harness], open_tunnel: Callable[[str, str], Tunnel]
) -> None:
    daemon = serve()
    local = str(daemon.root / "tunnel.sock")
    tunnel = open_tunnel(local, daemon.socket)
    session = daemon.new()
    with Client.connect(local) as client, client.events(session.id, 0) as events:
        session.ask("one")
        seen = [next(events)]
        tunnel.close()
        session.ask("two")
        tunnel = open_tunnel(local, daemon.socket)
        while sum(envelope.event.type == "turn_completed" for envelope in seen) < 2:
            seen.append(next(events))
    assert [envelope.seq for envelope in seen] == [event["seq"] for event in session.events()]
    tunnel.close()

"""What listens at the socket's path may be another user's program: each client asks the kernel before it sends anything."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")

STRANGER, VICTIM = 12345, 54321
SERVER = """
import os, socket, sys
os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen()
print("listens", flush=True)
client = listener.accept()[0]
client.settimeout(60)
print(client.recv(65536), flush=True)
"""
CLIENT = """
import os, sys, trio
import clisup.client.aio_connection, clisup.client.raw
from clisup.bridge.bridge import Bridge
from clisup.errors import ClisupError
kind, path, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.setgid(uid), os.setuid(uid)
try:
    if kind == "blocking":
        clisup.client.raw.RawClient(path, "test").dial()
    elif kind == "computed":
        clisup.client.raw.RawClient.connect()
    elif kind == "trio":
        trio.run(clisup.client.aio_connection.AsyncConnection.dial, path)
    else:
        bridge = Bridge(path, "the token", lambda _line: None)
        bridge.daemon.connect(1.0)
        print("connected" if bridge.daemon.socket else "permission_denied")
        sys.exit()
    print("connected")
except ClisupError as error:
    print(error.kind, error.message, error.hint)
"""
Listen = Callable[[int], "subprocess.Popen[str]"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in which everybody may listen and connect."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


@pytest.fixture
def listen(place: Path) -> Iterator[Listen]:
    """Starts one that listens at `place/clisup.sock` as some user."""
    started: list[subprocess.Popen[str]] = []

    def start(uid: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SERVER, str(place / "clisup.sock"), str(uid)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None and server.stdout.readline() == "listens\n"
        return server

    yield start
    for server in started:
        server.kill()
        server.communicate()


def client(kind: str, path: Path, uid: int, **env: str) -> str:
    """What a client of that user says of it."""
    command = [sys.executable, "-c", CLIENT, kind, str(path), str(uid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": "/none", **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def received(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().strip()


@pytest.mark.fault(42)
@pytest.mark.parametrize("kind", ["blocking", "trio", "bridge"])
def test_no_client_sends_a_byte_to_another_users_program(place: Path, listen: Listen, kind: str) -> None:
    server = listen(STRANGER)
    said = client(kind, place / "clisup.sock", VICTIM)
    assert said.startswith("permission_denied")
    if kind != "bridge":
        assert f"it runs as uid {STRANGER}: nothing was sent" in said and "CLISUP_SOCKET" in said
    assert received(server) == "b''"


@pytest.mark.parametrize("kind", ["blocking", "trio", "bridge"])
def test_a_daemon_of_ones_own_and_what_root_listens_at_are_served(place: Path, listen: Listen, kind: str) -> None:
    """For a unit of the system's it is systemd, which is root, that listens."""
    listen(0)
    assert client(kind, place / "clisup.sock", VICTIM) == "connected"


@pytest.mark.parametrize("kind", ["blocking", "trio"])
def test_root_reaches_the_daemon_of_a_user_by_its_name(place: Path, listen: Listen, kind: str) -> None:
    listen(VICTIM)
    path = place / "clisup.sock"
    assert client(kind, path, 0, CLISUP_SOCKET=str(path)) == "connected"


def test_root_is_not_led_to_another_user_by_a_path_that_was_computed(place: Path, listen: Listen) -> None:
    """As with the HOME of a user, which some sudo keeps."""
    server = listen(STRANGER)
    said = client("computed", place, 0, CLISUP_STATE_DIR=str(place), XDG_RUNTIME_DIR="/none")
    assert said.startswith("permission_denied")
    assert f"name it: CLISUP_SOCKET={place}/clisup.sock" in said
    assert received(server) == "b''"

"""Another user of the machine puts code, links and names where a daemon looks: whole daemons, which take none of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away, and make a namespace"),
]

STRANGER = 12345
LIMIT_S = 120


@pytest.mark.fault(60)
@pytest.mark.parametrize("whose", ["the directory", "its parent", "a file in it", "nobody's: all may write"])
def test_a_state_directory_that_another_user_could_write_is_not_used(serve: Callable[..., Harness], whose: str) -> None:
    daemon = serve(start=False)
    daemon.state = daemon.root / "parent" / "state"
    daemon.state.mkdir(parents=True)
    planted = daemon.state / "accounts.json"
    planted.write_text("{}")
    given = {"the directory": daemon.state, "its parent": daemon.state.parent, "a file in it": planted}.get(whose)
    if given is None:
        daemon.state.chmod(0o777)
    else:
        os.chown(given, STRANGER, STRANGER)
    code, words = daemon.refusal()
    assert code == 78 and "Traceback" not in words
    assert (f"belongs to uid {STRANGER}" if given else "others may write") in words and str(
        given or daemon.state
    ) in words
    assert os.listdir(daemon.state) == [planted.name], "nothing was made there"


def test_a_link_in_place_of_the_lock_is_not_followed(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.state.mkdir(mode=0o700)
    (daemon.root / "victim").write_text("precious")
    (daemon.state / "daemon.lock").symlink_to(daemon.root / "victim")
    code, words = daemon.refusal()
    assert code == 69 and "no regular file of this user's: remove it" in words
    assert (daemon.root / "victim").read_text() == "precious"


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command with an empty environment where /etc/passwd says what it is told of root, and /run is empty."""
    started: list[subprocess.Popen[str]] = []

    def start(home: str, *command: str) -> subprocess.Popen[str]:
        passwd = tmp_path / "passwd"
        passwd.write_text(f"root:x:0:0:root:{home}:/bin/sh\n")
        script = 'mount --bind "$0" /etc/passwd && mount -t tmpfs tmpfs /run && exec env -i PATH="$PATH" "$@"'
        argv = ["unshare", "--mount", "sh", "-c", script, str(passwd), sys.executable, "-m", "clisup", *command]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def test_without_a_home_in_the_environment_daemon_and_client_meet_in_the_users_own(
    tmp_path: Path, bare: Callable[..., subprocess.Popen[str]]
) -> None:
    """As a unit of the system without User= starts it, and `env -i` by hand."""
    daemon = bare(str(tmp_path), "serve")
    socket = tmp_path / ".local/state/clisup/clisup.sock"
    until(lambda: socket.exists() or daemon.poll() is not None, patience=LIMIT_S)
    if daemon.poll() is not None:
        said = daemon.communicate()[1]
        assert "unshare:" in said, said
        pytest.skip(f"no mount namespace here: {said}")
    inside = ["nsenter", "-m", "-t", str(daemon.pid), "env", "-i", f"PATH={os.environ['PATH']}"]
    command = [*inside, sys.executable, "-m", "clisup", "run", "-b", "demo", "@text at home"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "at home" in done.stdout, done.stderr
    assert not os.path.exists("/tmp/clisup-0")


@pytest.mark.parametrize("command", [("serve",), ("status",), ("run", "-b", "demo", "hello")])
def test_without_any_home_a_command_says_what_to_set(
    bare: Callable[..., subprocess.Popen[str]], command: tuple[str, ...]
) -> None:
    out, said = (process := bare("nowhere", *command)).communicate(timeout=LIMIT_S)
    if "unshare:" in said:
        pytest.skip(f"no mount namespace here: {said}")
    assert (process.returncode, out) == (78, "")
    assert "HOME is not set and uid 0 has no home" in said and "CLISUP_STATE_DIR" in said and "Traceback" not in said

"""What a daemon executes itself with, in a process of its own: what a child could read in /proc is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.host.process import carrying

WORDS = st.binary(max_size=40).map(os.fsdecode)
"""Whatever a variable may hold, and more: bytes that are no UTF-8, quotes, control characters."""
# Stands in for `python -m clisup`: carries the environment over, and says what is left where.
CHILD = """
import json, os, sys
from clisup.host.process import carrying
executed = os.execve
def execve(path, argv, env):
    executed(path, [path, "-P", __file__, *argv[argv.index("clisup") + 1:]], env)
os.execve = execve
given = sys.orig_argv
carrying.carry_environment_over(["serve", "--x"])
taken = dict(carrying.taken_environment())
print(json.dumps({
    "argv": sys.argv[1:],
    "taken": taken,
    "own": dict(os.environ),
    "proc": open("/proc/self/environ").read(),
    "fds": [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")],
}))
"""


@pytest.fixture
def carried(tmp_path: Path) -> dict[str, Any]:
    """What a daemon finds that was started with 41 canaries, a base URL and a name that is no UTF-8."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    canaries = {f"CANARY_{number}": f"canary-{number}" for number in range(41)}
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/h",
        "NOTIFY_SOCKET": "/n",
        "PYTHONPATH": str(tmp_path / "evil"),
        b"ODD": b"\xff\xfe",
        **canaries,
    }
    done = subprocess.run([sys.executable, "-P", str(script)], env=env, capture_output=True, check=True, cwd=tmp_path)
    return dict(json.loads(done.stdout))


@pytest.mark.fault(34)
def test_nothing_of_the_environment_is_left_in_proc(carried: dict[str, Any]) -> None:
    for place in ("proc", "own"):
        assert "canary" not in json.dumps(carried[place])
        assert "PYTHONPATH" not in carried[place]
    assert set(carried["own"]) <= {
        "PATH",
        "HOME",
        "NOTIFY_SOCKET",
        "LC_CTYPE",
        "PYDANTIC_DISABLE_PLUGINS",
        "CLISUP_FIRST_LIMIT",
    }


@pytest.mark.fault(34)
def test_no_plugin_of_another_package_sees_what_the_daemon_validates(carried: dict[str, Any]) -> None:
    assert carried["own"]["PYDANTIC_DISABLE_PLUGINS"] == "__all__"


def test_the_daemon_itself_still_knows_all_of_it(carried: dict[str, Any]) -> None:
    assert {name for name in carried["taken"] if name.startswith("CANARY_")} == {f"CANARY_{n}" for n in range(41)}
    assert carried["taken"]["CANARY_7"] == "canary-7"
    assert os.fsencode(carried["taken"]["ODD"]) == b"\xff\xfe"
    assert "CLISUP_ENVIRONMENT_FD" not in carried["taken"]


def test_the_memory_file_is_closed_and_the_arguments_are_kept(carried: dict[str, Any]) -> None:
    assert not any("memfd" in target for target in carried["fds"])
    assert carried["argv"] == ["serve", "--x"]


@pytest.mark.fault(76)
def test_the_directory_that_the_daemon_is_started_in_brings_no_code(tmp_path: Path) -> None:
    (tmp_path / "clisup").mkdir()
    (tmp_path / "clisup" / "__init__.py").write_text("print('evil')")
    (tmp_path / "json.py").write_text("print('evil')")
    code = "from clisup.host.process.carrying import carry_environment_over as carry; carry(['version'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "evil" not in done.stdout
    assert "clisup" in done.stdout


@pytest.mark.parametrize(
    ("carried", "found"),
    [
        ({"env": {"A": "1"}, "credentials": {"K": "v"}}, ({"A": "1"}, {"K": "v"})),
        ({"A": "1", "env": "mine"}, ({"A": "1", "env": "mine"}, {})),
    ],
    ids=["of this version", "of the version before credentials, which is upgraded in place"],
)
def test_what_another_process_image_carried_is_taken_once(
    carried: dict[str, Any], found: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.memfd_create("carried", os.MFD_CLOEXEC)
    os.write(fd, json.dumps(carried).encode())
    monkeypatch.setenv("CLISUP_ENVIRONMENT_FD", str(fd))
    taken = carrying.taken()
    assert (taken.env, taken.credentials) == found
    assert "CLISUP_ENVIRONMENT_FD" not in os.environ and not os.path.exists(f"/proc/self/fd/{fd}")


@given(env=st.dictionaries(WORDS, WORDS), credentials=st.dictionaries(WORDS, WORDS))
def test_every_variable_and_credential_arrives_as_it_was(env: dict[str, str], credentials: dict[str, str]) -> None:
    fd = carrying.carried_file(carrying.Carried(env, credentials))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLISUP_ENVIRONMENT_FD", str(fd))
        taken = carrying.taken()
    assert (taken.env, taken.credentials) == (env, credentials)


def test_the_first_process_loads_next_to_nothing() -> None:
    """A start pays for it twice. The words are those of a daemon that stands in a unit."""
    code = (
        "import os, sys\n"
        "def execve(*_): print(*sys.modules); sys.stdout.flush(); os._exit(0)\n"
        "os.execve = execve\n"
        "sys.argv = ['clisup', 'serve', '--config', 'clisup.toml', '--log-format', 'json']\n"
        "from clisup.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert {name for name in loaded if name.startswith("clisup")} == {
        "clisup", "clisup.cli", "clisup.cli.main", "clisup.cli.streams", "clisup.errors",
        "clisup.host", "clisup.host.process", "clisup.host.process.carrying",
    }  # fmt: skip
    assert not {"typing", "json", "re", "click", "ctypes", "socket", "platform", "trio"} & set(loaded)


def test_a_system_without_memory_files_is_left_to_the_check_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert carrying.can_carry()
    monkeypatch.delattr(os, "memfd_create")
    assert not carrying.can_carry()

"""Where clisup's files are: a variable, else the configuration's word, else the default; the same for daemon and clients."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from clisup import locations
from clisup.errors import ConfigurationError
from clisup.locations import (
    config_file,
    default_socket,
    default_state_dir,
    home_dir,
    in_home,
    is_named,
    socket_for_client,
)

UID = 54321  # nobody's: there is no /run/user/54321


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HOME": "/h"}, "/h/.local/state/clisup"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/clisup"),
        ({"HOME": "/h", "XDG_STATE_HOME": ""}, "/h/.local/state/clisup"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x", "CLISUP_STATE_DIR": "/s/../t"}, "/t"),
    ],
)
def test_the_state_directory(env: dict[str, str], path: str) -> None:
    assert default_state_dir(env, UID) == path


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HOME": "/h"}, "/h/.config/clisup/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/clisup/config.toml"),
        ({"HOME": "/h", "CLISUP_CONFIG": "/c.toml"}, "/c.toml"),
    ],
)
def test_the_configuration_file(env: dict[str, str], path: str) -> None:
    assert config_file(env) == path


@pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_in_the_environment_the_password_database_knows_it(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `env -i`, or in a system unit without User=: systemd sets no HOME there."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert default_state_dir(env, os.getuid()) == f"{home}/.local/state/clisup"
    assert default_state_dir(env, 0) == f"{pwd.getpwuid(0).pw_dir}/.local/state/clisup"
    assert config_file(env) == f"{home}/.config/clisup/config.toml"
    assert in_home("~/x", env) == f"{home}/x"
    assert home_dir(env) == home


@pytest.mark.parametrize("known", [None, "", "relative"])
def test_a_user_without_any_home_is_refused_and_given_no_name_that_others_can_take(
    known: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(uid: int) -> object:
        if known is None:
            raise KeyError(uid)
        return SimpleNamespace(pw_dir=known, pw_name="ada")

    monkeypatch.setattr(pwd, "getpwuid", look)
    env = {"XDG_RUNTIME_DIR": "/none", "XDG_CONFIG_HOME": "/none"}
    for ask in (
        lambda: default_state_dir(env, UID),
        lambda: default_socket(env, UID),
        lambda: socket_for_client(env, UID),
        lambda: in_home("~/x", env),
    ):
        with pytest.raises(ConfigurationError, match="HOME is not set and uid") as caught:
            ask()
        for way_out in ("HOME", "--state-dir", "CLISUP_STATE_DIR", "CLISUP_SOCKET"):
            assert way_out in caught.value.hint
    assert config_file({}) == "/.config/clisup/config.toml", "where only root can put one"
    assert default_state_dir({"CLISUP_STATE_DIR": "/s"}, UID) == "/s"
    assert default_state_dir({"XDG_STATE_HOME": "/x"}, UID) == "/x/clisup"
    assert socket_for_client({"CLISUP_SOCKET": "/s"}, UID) == "/s"


def test_a_socket_is_named_by_an_argument_the_variable_and_a_configuration_of_ones_own(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = socket_for_client(env, UID)
    assert not is_named(computed, env, os.getuid())
    assert is_named("/other/s", env, os.getuid())
    assert is_named(computed, {**env, "CLISUP_SOCKET": computed}, os.getuid())
    assert not is_named(computed, {**env, "CLISUP_SOCKET": "/other/s"}, os.getuid())
    assert configured(env, "[daemon]\nsocket = '/c.sock'") == "/c.sock"
    assert is_named("/c.sock", env, os.getuid())
    assert not is_named("/c.sock", env, os.getuid() + 1), "the file is another user's"


def test_the_socket_is_in_the_runtime_directory_where_there_is_one(tmp_path: Path) -> None:
    env = {"HOME": "/h", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert default_socket(env, UID) == f"{tmp_path}/clisup/clisup.sock"
    assert (
        default_socket({**env, "XDG_RUNTIME_DIR": str(tmp_path / "absent")}, UID)
        == "/h/.local/state/clisup/clisup.sock"
    )
    assert default_socket({"HOME": "/h"}, UID) == "/h/.local/state/clisup/clisup.sock"
    assert default_socket({**env, "CLISUP_SOCKET": "/s.sock"}, UID) == "/s.sock"


def test_a_relative_variable_is_taken_from_where_the_program_was_started() -> None:
    assert default_socket({"CLISUP_SOCKET": "s.sock"}, UID) == os.path.abspath("s.sock")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "CLISUP_CONFIG": str(tmp_path / "config.toml")}


def configured(env: dict[str, str], text: str) -> str:
    Path(env["CLISUP_CONFIG"]).write_text(text)
    return socket_for_client(env, UID)


def test_a_client_heeds_the_configuration_file(env: dict[str, str]) -> None:
    home = env["HOME"]
    assert socket_for_client(env, UID) == f"{home}/.local/state/clisup/clisup.sock"
    assert configured(env, "") == f"{home}/.local/state/clisup/clisup.sock"
    assert configured(env, "[daemon]\nsocket = '/c.sock'") == "/c.sock"
    assert configured(env, "[daemon]\nstate_dir = '/s'") == "/s/clisup.sock"
    assert configured({**env, "CLISUP_STATE_DIR": "/v"}, "[daemon]\nstate_dir = '/s'") == "/v/clisup.sock"
    assert configured({**env, "CLISUP_SOCKET": "/v.sock"}, "[daemon]\nsocket = '/c.sock'") == "/v.sock"


@pytest.mark.parametrize("text", ["[daemon", "[daemon]\nsocket = ''"])
def test_a_client_takes_the_default_where_the_file_does_not_say(env: dict[str, str], text: str) -> None:
    assert configured(env, text) == f"{env['HOME']}/.local/state/clisup/clisup.sock"


def test_a_client_survives_a_configuration_that_cannot_be_read(env: dict[str, str]) -> None:
    Path(env["CLISUP_CONFIG"]).mkdir()
    assert socket_for_client(env, UID).endswith("clisup.sock")


def test_a_configuration_that_is_nonsense_does_not_stop_a_client(tmp_path: Path) -> None:
    for content in (b"daemon = 5\n", b"\xff\xfe[daemon]\n", b"[daemon\n"):
        (tmp_path / "config.toml").write_bytes(content)
        env = {"CLISUP_CONFIG": str(tmp_path / "config.toml"), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/none"}
        assert socket_for_client(env, 12345) == str(tmp_path / ".local/state/clisup/clisup.sock")


def test_a_client_finds_the_systems_daemon_where_its_user_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    systems = tmp_path / "run" / name / "clisup.sock"
    own = tmp_path / "runtime" / "clisup" / "clisup.sock"
    for path in (systems, own):
        path.parent.mkdir(parents=True)
    monkeypatch.setattr(locations, "SYSTEM_SOCKETS", str(tmp_path / "run"))
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    assert socket_for_client(env, os.getuid()) == str(own), "neither is there"
    systems.touch()
    assert socket_for_client(env, os.getuid()) == str(systems)
    assert socket_for_client(env, 2**31 - 7) == str(own), "a uid without a name"
    assert default_socket(env, os.getuid()) == str(own), "a daemon of one's own is not the system's"
    own.touch()
    assert socket_for_client(env, os.getuid()) == str(own)
    assert socket_for_client({**env, "CLISUP_SOCKET": "/s"}, os.getuid()) == "/s"


@pytest.mark.parametrize("name", ["CLISUP_SOCKET", "CLISUP_STATE_DIR", "CLISUP_CONFIG"])
def test_a_relative_place_in_a_directory_that_is_gone_is_one_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not os.path.exists(socket_for_client({"HOME": "/h", name: "here/x"}, UID))

"""`env_files` of a backend: values from private files and from systemd's credentials; no error ever shows one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clisup.config.model import Config, parse_config
from clisup.errors import ConfigurationError
from clisup.host.config_file import read_credentials, with_credentials

SECRET = "s3cr3t-value"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


def configured(place: str, **more: Any) -> Config:
    return parse_config({"backends": {"demo": {"env_files": {"DEMO_KEY": place}, **more}}})


def value(config: Config) -> str | None:
    found = config.backends["demo"].env.get("DEMO_KEY")
    return None if found is None else found.get_secret_value()


def test_a_value_comes_from_a_private_file_without_the_end_of_its_line(key: Path) -> None:
    for text in (SECRET, f"{SECRET}\n", f"{SECRET}\r\n"):
        key.write_text(text)
        assert value(with_credentials(configured(str(key)), {}, {})) == SECRET


def test_a_tilde_is_the_daemons_home(key: Path) -> None:
    assert value(with_credentials(configured("~/key"), {}, {"HOME": str(key.parent)})) == SECRET


def test_a_value_comes_from_a_credential(tmp_path: Path) -> None:
    assert value(with_credentials(configured("credential:demo"), {"demo": SECRET}, {})) == SECRET


def test_a_command_without_a_daemon_does_without_the_daemons_credentials(key: Path) -> None:
    assert value(with_credentials(configured("credential:demo"), None, {})) is None
    assert value(with_credentials(configured(str(key)), None, {})) == SECRET


def test_a_value_has_no_string_form(key: Path) -> None:
    config = with_credentials(configured(str(key)), {}, {})
    assert SECRET not in repr(config) + str(config.model_dump()) + config.model_dump_json()


def test_what_has_no_files_stays_what_it_is() -> None:
    config = parse_config({})
    assert with_credentials(config, {}, {}) is config
    filled = with_credentials(configured("credential:x"), {"x": SECRET}, {})
    assert "claude" in filled.untouched, "the built-in ones are still known as such"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("credential:absent", "systemd has passed no credential 'absent'"),
        ("credential:../key", "no name of a credential"),
        ("relative", "no absolute path"),
        ("/nonexistent/key", "cannot be read: No such file"),
        ("/dev/null", "no regular file"),
    ],
)
def test_a_place_that_gives_nothing_is_an_error_of_the_start(place: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        with_credentials(configured(place), {}, {})
    assert "backends.demo.env_files.DEMO_KEY" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_can_read_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(ConfigurationError, match="open to others") as caught:
        with_credentials(configured(str(key)), {}, {})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("data", "why"), [(b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "no UTF-8")])
def test_a_file_without_a_value_is_refused(key: Path, data: bytes, why: str) -> None:
    key.write_bytes(data)
    with pytest.raises(ConfigurationError, match=why):
        with_credentials(configured(str(key)), {}, {})


def test_a_variable_has_one_source(key: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"backends.demo.env sets DEMO_KEY as well"):
        with_credentials(configured(str(key), env={"DEMO_KEY": "x"}), {}, {})


def test_credentials_are_read_over_those_that_were_carried(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("n")
    (tmp_path / "both").write_text("from the directory")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "below").mkdir()
    carried = {"old": "o", "both": "carried"}
    found = read_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)}, carried)
    assert found == {"old": "o", "both": "from the directory", "new": "n"}
    assert read_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path / "gone")}, carried) == carried
    assert read_credentials({}, carried) == carried


def test_more_than_systemd_would_pass_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"x" * 600 * 1024)
    with pytest.raises(ConfigurationError, match="more than 1 MiB"):
        read_credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)}, {})
    assert len(os.listdir(tmp_path)) == 2

"""The readers of the configuration file, for the daemon and for its clients: odd files hang neither and end neither."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clisup.errors import ConfigurationError
from clisup.host.config_file import ConfigFile
from clisup.locations import socket_for_client

TEXT = '[daemon]\nsocket = "/tmp/x/s"\n'


def env(path: Path) -> dict[str, str]:
    return {"CLISUP_CONFIG": str(path), "HOME": "/root"}


@pytest.mark.fault(92)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert ConfigFile(str(path), True).read().daemon.socket == "/tmp/x/s"
    assert socket_for_client(env(path), os.getuid()) == "/tmp/x/s"


@pytest.mark.fault(92)
def test_a_fifo_is_refused_by_the_daemon_and_is_no_configuration_for_a_client(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match="no regular file"):
        ConfigFile(str(path), True).read()
    assert socket_for_client(env(path), os.getuid()).endswith("clisup.sock")


@pytest.mark.fault(92)
@pytest.mark.parametrize("part", ["a", '"a b"', "'c'"])
@pytest.mark.parametrize("form", ["{}x = 1", "[{}x]", "y = {{ {}x = 1 }}"])
def test_a_key_of_very_many_parts_is_refused_before_its_reader_takes_seconds(
    tmp_path: Path, part: str, form: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(form.format(f"{part} . " * 20_000))
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        ConfigFile(str(path), True).read()
    assert socket_for_client(env(path), os.getuid()).endswith("clisup.sock")


def test_a_text_with_many_dots_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"# {'. ' * 5000}\n{TEXT}# {'a' * 100_000}\n")
    assert ConfigFile(str(path), True).read().daemon.socket == "/tmp/x/s"

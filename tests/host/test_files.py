"""Small durable files: whole or not there, and the owner's alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clisup.config.model import parse_config
from clisup.errors import ConfigurationError, WorldError
from clisup.host.clock import age_of, boot_id, monotonic, timestamp
from clisup.host.config_file import ConfigFile
from clisup.host.files import make_private_dir, read_json, write_atomic, write_json
from clisup.store.transcripts import transcript_exists


def test_a_file_is_replaced_whole_and_leaves_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"first and long", b"second", b""):
        write_atomic(str(path), data)
        assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(WorldError, match="cannot write") as caught:
        write_atomic(str(path), b"x", sync=False)
    assert (caught.value.kind, caught.value.data["errno"] > 0) == ("storage_failed", True)
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(WorldError, match="No such file or directory"):
        write_atomic(str(tmp_path / "absent" / "file"), b"x")


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    value = {"a": [1, None, "ü"], "b": {}}
    write_json(path, value)
    assert read_json(path) == value


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", "\x00" * 100, '{"a":' * 50_000, b"\xff\xfe".decode("latin-1")])
def test_what_is_no_json_object_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, encoding="latin-1")
    assert read_json(str(tmp_path / "file")) is None


def test_a_missing_file_is_none_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    assert read_json(str(tmp_path / "absent")) is None
    assert read_json(str(tmp_path / "file" / "below")) is None
    with pytest.raises(WorldError, match="cannot read"):
        read_json(str(tmp_path))


def test_a_private_directory_and_every_parent_made_for_it_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_dir(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    for path in ("a", "a/b", "a/b/c"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o700, path
    make_private_dir(str(tmp_path / "a" / "b"))


@pytest.mark.fault(60)
def test_a_directory_that_cannot_be_made_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path, reason in (("file", "File exists"), ("file/below", "File exists"), ("dangling", "File exists")):
        with pytest.raises(WorldError, match=f"cannot make the directory .*{reason}") as caught:
            make_private_dir(str(tmp_path / path))
        assert caught.value.kind == "storage_failed"
    with pytest.raises(WorldError, match="cannot make the directory"):
        make_private_dir("/proc/clisup/state")


# -- the configuration file -------------------------------------------------------------------------------------------


def test_a_configuration_file_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[daemon]\nmax_queue = 7\n")
    assert ConfigFile(str(path), required=True).read().daemon.max_queue == 7


def test_without_a_file_there_are_the_defaults_unless_one_was_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "absent.toml")
    assert ConfigFile(path, required=False).read() == parse_config({})
    with pytest.raises(ConfigurationError, match="there is no such file"):
        ConfigFile(path, required=True).read()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[daemon\n", "it is not TOML"),
        (b"[daemon]\nsocket = '\xff'\n", "it is not UTF-8 at byte 19"),
        (b"[daemon]\nsokcet = 'x'\n", "the nearest known key is 'socket'"),
        (b"[daemon]\nmax_queue = " + b"9" * 5000 + b"\n", "one of its numbers is too long"),
        (b"[daemon]\nsocket = " + b"[" * 5000 + b"\n", "it is nested too deeply"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_name_and_the_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    for required in (True, False):
        with pytest.raises(ConfigurationError, match=reason) as caught:
            ConfigFile(str(path), required=required).read()
        assert str(path) in caught.value.message
        assert caught.value.exit_code == 78


def test_a_configuration_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        ConfigFile(str(tmp_path), required=False).read()


# -- clocks and transcripts -------------------------------------------------------------------------------------------


def test_stamps_are_utc_with_microseconds_and_sort_as_time_does() -> None:
    stamps = [timestamp() for _ in range(50)]
    assert stamps == sorted(stamps)
    assert all(len(stamp) == 27 and stamp.endswith("Z") and stamp[19] == "." for stamp in stamps)
    assert age_of(stamps[0]) >= 0
    assert monotonic() <= monotonic()
    assert json.dumps(boot_id()).count("-") == 4


def test_a_transcript_is_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    pattern = str(tmp_path / "*" / "id.jsonl")
    assert not transcript_exists(None)
    assert not transcript_exists(pattern)
    (tmp_path / "project" / "id.jsonl").touch()
    assert transcript_exists(pattern)

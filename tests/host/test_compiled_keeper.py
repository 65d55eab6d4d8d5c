"""The keeper is compiled once for a state directory, and anew where another clisup or another Python comes."""

from __future__ import annotations

import marshal
import os
from pathlib import Path

import pytest

from clisup.host.process import keepers
from clisup.host.process.keepers import compile_keeper


def test_what_a_daemon_before_has_compiled_is_used_again(tmp_path: Path) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    before = path.stat()
    assert compile_keeper(str(tmp_path)) == str(path)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert marshal.loads(path.read_bytes()[16:]).co_filename.endswith("keeper.py")


@pytest.mark.parametrize("spoil", [b"", b"junk", None])
def test_a_file_that_is_no_such_code_is_made_anew(tmp_path: Path, spoil: bytes | None) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    good = path.read_bytes()
    path.write_bytes(good[:16] if spoil is None else spoil)
    compile_keeper(str(tmp_path))
    assert path.read_bytes() == good


def test_another_source_of_the_same_version_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    old = path.read_bytes()
    other = tmp_path / "keeper.py"
    other.write_text("print('another')\n")
    monkeypatch.setattr(keepers, "_KEEPER_FILE", str(other))
    assert compile_keeper(str(tmp_path)) == str(path) and path.read_bytes() != old


def planted(path: Path, marker: Path) -> bytes:
    """Code of somebody else, behind the bytes by which the keeper's own is known."""
    head = path.read_bytes()[:16]
    evil = head + marshal.dumps(compile(f"open({str(marker)!r}, 'w')", "evil", "exec"))
    path.write_bytes(evil)
    return evil


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_code_that_another_user_has_put_there_is_replaced(tmp_path: Path) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    good, evil = path.read_bytes(), planted(path, tmp_path / "marker")
    os.chown(path, 12345, 12345)
    compile_keeper(str(tmp_path))
    assert path.read_bytes() == good != evil
    assert path.stat().st_uid == os.geteuid()


def test_code_that_others_could_have_written_is_replaced(tmp_path: Path) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    assert path.stat().st_mode & 0o777 == 0o600
    good, evil = path.read_bytes(), planted(path, tmp_path / "marker")
    path.chmod(0o620)
    compile_keeper(str(tmp_path))
    assert path.read_bytes() == good != evil


def test_a_link_is_replaced_and_what_it_names_is_left(tmp_path: Path) -> None:
    path = Path(compile_keeper(str(tmp_path)))
    good, evil = path.read_bytes(), planted(path, tmp_path / "marker")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("elsewhere")
    compile_keeper(str(tmp_path))
    assert path.read_bytes() == good and not path.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == evil

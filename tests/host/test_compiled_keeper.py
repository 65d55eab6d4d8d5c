"""The keeper is compiled once for a state directory, and anew where another clisup or another Python comes."""

from __future__ import annotations

import marshal
from pathlib import Path

import pytest

from clisup.host import keepers
from clisup.host.keepers import compile_keeper


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

"""Which files a CLI consists of, and that reading them has an end."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from clisup.errors import WorldError
from clisup.host.process import program_files as module
from clisup.host.process.program_files import program_files, read_pieces


def write(path: Path, text: str = "x") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_a_native_program_is_one_file_behind_all_links(tmp_path: Path) -> None:
    true = Path(shutil.which("true") or "/bin/true").resolve()
    (tmp_path / "link").symlink_to(true)
    assert program_files([str(tmp_path / "link")]) == [str(true)]


def test_a_script_brings_the_sources_of_its_package_and_no_interpreter(tmp_path: Path) -> None:
    write(tmp_path / "package.json")
    cli = write(tmp_path / "dist" / "cli.js")
    other = write(tmp_path / "dist" / "chunks" / "a.mjs")
    inner = write(tmp_path / "node_modules" / "dep" / "b.cjs")
    write(tmp_path / "README.md")
    node = write(tmp_path / "elsewhere" / "node")
    (tmp_path / "bin").symlink_to(cli)
    assert program_files([node, str(tmp_path / "bin"), "--flag"]) == [cli, other, inner]


def test_a_script_without_a_package_is_alone_and_a_python_package_is_its_folder(tmp_path: Path) -> None:
    alone = write(tmp_path / "bin" / "tool")
    write(tmp_path / "bin" / "other.py")
    assert program_files([alone]) == [alone]
    main, part = write(tmp_path / "pkg" / "__main__.py"), write(tmp_path / "pkg" / "part.py")
    assert program_files([sys.executable, "-I", main]) == [main, part]


def test_a_command_that_names_no_file_is_refused_with_a_way_out() -> None:
    with pytest.raises(WorldError, match="names no file") as caught:
        program_files(["/nowhere/cli"])
    assert "command" in caught.value.hint


def test_pieces_overlap_so_that_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 10)
    taken: list[bytes] = []
    told: list[tuple[int, int]] = []
    files = [write(tmp_path / "a", "0123456789abcdefghij!"), str(tmp_path / "gone"), write(tmp_path / "b", "B")]
    read = read_pieces(files, taken.append, overlap=4, progress=lambda *now: told.append(now))
    assert taken == [b"0123456789", b"6789abcdefghij", b"ghij!", b"B"]
    assert told == [(10, 22), (20, 22), (21, 22), (22, 22)]
    assert read == (3, 22, True)


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 10), ("MAX_S", -1.0), ("MAX_FILES", 1)])
def test_every_limit_ends_the_reading_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(module, limit, value)
    files = [write(tmp_path / "a", "x" * 10), write(tmp_path / "b", "x" * 10)]
    taken: list[bytes] = []
    read = read_pieces(files, taken.append, overlap=4, progress=lambda done, total: None)
    assert not read.complete and sum(map(len, taken)) <= 10

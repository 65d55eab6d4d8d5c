"""Files that a crash leaves whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clisup.errors import UsageError, WorldError
from clisup.llm.files import open_lock, read_bounded, write_durably

ROOT = Path(__file__).resolve().parents[2]
WRITER = """
import sys
from clisup.llm.memory import WorkingMemory
memory = WorkingMemory(sys.argv[1])
for n in range(1_000_000):
    memory.set("n", {"n": n, "filler": "x" * 20_000})
    print(n, flush=True)
"""


def test_a_file_is_written_in_place_of_the_old_one_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    write_durably(path, b"new")
    assert read_bounded(path, 3) == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_not_there_is_nothing_and_what_is_too_large_is_refused(tmp_path: Path) -> None:
    assert read_bounded(tmp_path / "none", 10) is None
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(UsageError, match="larger than 4 bytes"):
        read_bounded(tmp_path / "file", 4)


def test_what_cannot_be_read_or_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    for attempt in (
        lambda: write_durably(tmp_path / "none" / "file", b""),
        lambda: write_durably(tmp_path, b""),
        lambda: read_bounded(tmp_path, 10),
        lambda: open_lock(tmp_path / "none" / "lock"),
    ):
        with pytest.raises(WorldError) as failed:
            attempt()
        assert failed.value.kind == "storage_failed"
        assert "failed to " in failed.value.message
    assert os.listdir(tmp_path) == []


def test_a_kill_in_the_middle_of_a_write_leaves_what_was_told_or_the_next(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    for round_ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            told = [int(writer.stdout.readline()) for _ in range(3 + 7 * round_)]
            writer.send_signal(signal.SIGKILL)
            told += [int(line) for line in writer.stdout]
        assert json.loads(path.read_text())["values"]["n"]["n"] - told[-1] in (0, 1)

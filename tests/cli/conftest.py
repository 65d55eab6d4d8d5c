"""Fixtures: the command in this process, against a fake daemon or none."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))
from fake_daemon import FakeDaemon

from clisup.cli.main import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def socket_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "d.sock"
    for name in ("CLISUP_CONFIG", "CLISUP_STATE_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLISUP_SOCKET", str(path))
    monkeypatch.setenv("CLISUP_STATE_DIR", str(tmp_path / "state"))  # where status looks without a daemon
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where the numbers of approvals are
    return path


@pytest.fixture
def daemon(socket_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(socket_path)
    yield fake
    fake.close()


@pytest.fixture
def clisup(
    socket_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """`clisup("status", "--json", stdin="")` gives (code, out, err)."""

    def run(*args: str, stdin: str | TextIO = "") -> Ran:
        text = io.TextIOWrapper(io.BytesIO(stdin.encode())) if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", text)
        code = main(list(args))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run

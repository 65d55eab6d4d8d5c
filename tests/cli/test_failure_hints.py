"""A failure says which checks of the doctor explain it, in one line, and never twice."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clisup.cli.failure import TurnEnded, exit_code_of
from clisup.client.failures import cannot_connect
from clisup.errors import ClisupError, ConfigurationError, UsageError, WorldError


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[ClisupError], list[str]]:
    """The lines below the first one."""

    def tell(error: ClisupError) -> list[str]:
        exit_code_of(error)
        return capsys.readouterr().err.splitlines()[1:]

    return tell


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        ("backend_unavailable", {"backend": "claude"}, "clisup doctor claude (executable, version)"),
        ("backend_not_logged_in", {}, "clisup doctor (login, environment)"),
        ("backend_not_logged_in", {"backend": ["odd"]}, "clisup doctor (login, environment)"),
        ("storage_failed", {}, "clisup doctor (state directory)"),
    ],
)
def test_what_the_doctor_knows_is_one_line(told: Any, kind: str, data: dict[str, Any], line: str) -> None:
    assert told(WorldError("cannot", kind=kind, hint="try", **data)) == [f"  hint: try; see {line}"]
    assert told(WorldError("cannot", kind=kind, **data)) == [f"  hint: {line}"]


def test_what_the_doctor_does_not_know_has_no_line(told: Any) -> None:
    assert told(UsageError("cannot", kind="session_not_found", hint="list them")) == ["  hint: list them"]
    assert told(UsageError("cannot", kind="usage")) == []


def test_a_hint_that_names_the_doctor_is_enough(told: Any) -> None:
    assert told(ConfigurationError("cannot", hint="see clisup doctor")) == ["  hint: see clisup doctor"]
    same = "clisup doctor (state directory)"  # as the daemon has put it
    assert told(WorldError("cannot", kind="storage_failed", hint=same)) == [f"  hint: {same}"]


def test_an_error_that_names_its_check_is_explained_by_it(told: Any) -> None:
    error = ConfigurationError("cannot", hint="chmod", check="state directory")
    assert told(error) == ["  hint: chmod; see clisup doctor (state directory)"]
    assert told(ConfigurationError("cannot", hint="mend it")) == ["  hint: mend it; see clisup doctor (configuration)"]


def test_a_turn_has_the_doctors_word_on_its_own_error(told: Any) -> None:
    error = TurnEnded("cannot", code=1, hint="log in", doctor="clisup doctor claude (login, environment)")
    assert told(error) == ["  hint: log in; see clisup doctor claude (login, environment)"]
    assert told(TurnEnded("cannot", code=1)) == []


def test_a_daemon_that_does_not_answer_yet_is_not_to_be_started_again(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLISUP_STATE_DIR", str(tmp_path))
    error = cannot_connect(str(tmp_path / "sock"), FileNotFoundError(errno.ENOENT, "none"))
    assert told(error) == ["  hint: start it: clisup start; see clisup doctor (daemon, socket, systemd)"]
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, str(tmp_path / "daemon.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"\n"
        (hint,) = told(error)
        holder.communicate()
    assert hint.startswith(f"  hint: pid {holder.pid} holds the state directory: it is starting, stuck, or listens")
    assert "start it" not in hint

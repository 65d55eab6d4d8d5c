"""A daemon on a copy of the state directory, beside the daemon of the original."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from harness import Harness
from session_probe import SessionProbe


@pytest.fixture
def copy() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.close()


@pytest.mark.fault(86)
@pytest.mark.parametrize("damaged", [False, True])
def test_the_daemon_of_a_copy_ends_no_process_of_the_original(
    serve: Callable[..., Harness], copy: Harness, damaged: bool
) -> None:
    original = serve()
    session = original.new()
    turn = session.prompt("begun\n@wait-file go\nend")
    session.await_event("content_delta")
    before = session.processes()
    subprocess.run(["cp", "-a", str(original.state), str(copy.state)], check=True)
    if damaged:
        for path in (copy.state / "sessions" / session.id / "journal").iterdir():
            path.write_text("no journal\n")
    copy.start()
    if not damaged:
        copied = SessionProbe(copy, session.id)
        assert copied.end_of(turn)["error"]["kind"] == "crashed"
        assert copied.ask("Hello.")["outcome"] == "completed"
    assert session.processes() == before
    (original.cwd / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"

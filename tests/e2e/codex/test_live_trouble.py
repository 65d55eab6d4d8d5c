"""What goes wrong in a live session of the real codex: the turn ends as it must, and the session goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clisup.errors import ClisupError
from tests.e2e.codex.lab import CodexLab, running_with
from tests.e2e.codex.provider import codex_binary
from tests.e2e.codex.scenarios import Scenario, cut_short, run, say
from tests.e2e.lab import marked, poll, running
from tests.e2e.scenarios import in_turn
from tests.zoo.codex import codex_lab

pytestmark = pytest.mark.e2e
Lab = Callable[..., CodexLab]
LIVE = {"mode": "live"}
NOISY = """#!/bin/sh
{codex} "$@" | while IFS= read -r line; do printf '%s\\n#~junk\\n' "$line"; done
"""


@pytest.fixture
def scripted() -> Iterator[CodexLab]:
    """A lab whose model plays the prompts."""
    with running(codex_lab()) as lab:
        yield lab


@pytest.mark.fault(15)
@pytest.mark.fault(73)
def test_a_stalled_stream_ends_the_turn_and_not_the_process(scripted: CodexLab) -> None:
    session = scripted.open(timeouts={"model_idle": 2.0}, **LIVE)
    turn = scripted.turn("@stall", session=session)
    assert (turn["outcome"], turn["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert scripted.turn("Well.", session=session)["text"] == "Well."
    assert len(scripted.pids(session)) == 1


@pytest.mark.fault(12)
@pytest.mark.parametrize("at", ["work", "rest"])
def test_a_stopped_codex_is_killed_and_another_one_goes_on(scripted: CodexLab, at: str) -> None:
    session = scripted.open(timeouts={"model_idle": 2.0, "startup": 2.0, "int_grace": 1.0, "term_grace": 1.0}, **LIVE)
    assert scripted.turn("My name is Ada.", session=session)["outcome"] == "completed"
    if at == "work":
        scripted.prompt(session, "@stall")
        scripted.wait_for(session, "content_delta", turn_id="t2")
    os.kill(scripted.pids(session)[0], signal.SIGSTOP)
    if at == "rest":
        scripted.prompt(session, "Never read.")
    assert scripted.wait_for(session, "turn_completed", turn_id="t2")["outcome"] == "timed_out"
    assert scripted.wait_for(session, "process_exited")["signal"] in (signal.SIGTERM, signal.SIGKILL)
    assert scripted.turn("@first", session=session)["text"] == "You first said: My name is Ada."
    assert len(scripted.pids(session)) == 2


@pytest.mark.fault(65)
def test_text_that_a_cut_stream_takes_back_is_retracted_in_a_later_turn_too(lab: Lab) -> None:
    here = lab(Scenario("cut", in_turn(say("One."), cut_short, say("The whole answer."))))
    session = here.open(**LIVE)
    here.turn(session=session)
    assert here.turn(session=session)["text"] == "The whole answer."
    assert len(here.events(session, "retracted")) == 1 and len(here.pids(session)) == 1


@pytest.mark.fault(28)
def test_noise_between_the_lines_of_a_live_codex_is_kept_and_harms_no_turn(tmp_path: Path) -> None:
    noisy = tmp_path / "codex"
    noisy.write_text(NOISY.format(codex=codex_binary()))
    noisy.chmod(0o755)
    with running(codex_lab(command=noisy)) as here:
        session = here.open(**LIVE)
        texts = [here.turn(f"Text {n}.", session=session)["text"] for n in range(3)]
        assert texts == ["Text 0.", "Text 1.", "Text 2."]
        assert {event["excerpt"] for event in here.events(session, "unparsed")} == {"#~junk"}
        assert len(here.pids(session)) == 1


@pytest.mark.fault(5)
@pytest.mark.fault(14)
def test_a_codex_that_dies_while_the_daemon_is_down_fails_its_turn_and_leaves_no_command(lab: Lab) -> None:
    here = lab(Scenario("dies", in_turn(run("sleep 3731"), say("Well."))))
    session = here.open(permission_mode="danger-full-access", **LIVE)
    here.prompt(session)
    poll(lambda: running_with("sleep 3731"), "the command")
    pid = here.pids(session)[0]
    here.kill()
    os.kill(pid, signal.SIGKILL)
    poll(lambda: not running_with("sleep 3731"), "the end of the command")
    here.start()
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "crashed")
    assert here.wait_for(session, "process_exited")["signal"] == signal.SIGKILL
    assert here.turn("And now?", session=session)["text"] == "Well."


@pytest.mark.fault(55)
def test_a_full_disk_under_a_live_codex_loses_no_event(tmp_path: Path) -> None:
    here = codex_lab()
    here.state = tmp_path / "state"
    here.state.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(here.state)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        here.close()
        pytest.skip("needs root and a mount namespace that takes tmpfs")
    try:
        with running(here):
            session = here.open(timeouts={"model_idle": 3.0}, **LIVE)
            here.turn("First.", session=session)
            here.prompt(session, "@slow 40 0.2")
            here.wait_for(session, "content_delta", turn_id="t2")
            fill(here.state / "ballast")
            with here.client() as client:
                get = lambda: client.call("session/get", session_id=session)["phase"]  # noqa: E731
                poll(lambda: get() == "blocked", "the blocked turn")
                with pytest.raises(ClisupError) as refused:
                    client.call("session/prompt", session_id=session, prompt="Not now.")
                assert refused.value.kind == "storage_failed"
            (here.state / "ballast").unlink()
            end = here.wait_for(session, "turn_completed", turn_id="t2")
            assert (end["outcome"], end["text"]) == ("completed", "".join(f"{n} " for n in range(40)))
            deltas = [event["text"] for event in here.events(session, "content_delta") if event["turn_id"] == "t2"]
            assert "".join(deltas) == end["text"] and len(here.pids(session)) == 1
            assert not [name for name in marked(session) if name != "codex"]
    finally:
        subprocess.run(["umount", "-l", str(here.state)], check=True)


def fill(ballast: Path) -> None:
    """Leave no byte free."""
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue

"""A prompt whose fate nobody saw: said so, with what the CLI's own transcript tells, and never sent again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe


def took(session: SessionProbe, times: int = 1) -> bool:
    """Has the CLI written so many prompts into its transcript?"""
    home = session.daemon.root / "home/.local/state/clisup-demo/projects"
    found = list(home.glob(f"*/{session.id}.jsonl"))
    return (
        bool(found)
        and found[0].read_text().count('"type": "user"') + found[0].read_text().count('"type":"user"') >= times
    )


def lose(daemon: Harness, text: str, *, restart: bool = False) -> SessionProbe:
    """Prompt, and kill keeper and CLI before the model has said a word."""
    session = daemon.new()
    session.prompt(text, key="k")
    session.cli()
    until(lambda: "@no-transcript" in text or took(session))
    keeper = session.keeper()
    if restart:
        daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    if restart:
        daemon.start()
    assert session.end_of("t1")["error"]["kind"] == "crashed"
    return session


@pytest.mark.parametrize("restart", [False, True], ids=["daemon lives", "daemon was gone too"])
def test_a_lost_turn_before_any_answer_is_uncertain_and_not_sent_again(
    serve: Callable[..., Harness], tmp_path: Path, restart: bool
) -> None:
    daemon = serve()
    session = lose(daemon, f"@wait-file {tmp_path}/never\nan answer", restart=restart)
    end = session.end_of("t1")
    assert end["delivery"] == "uncertain" and end["evidence"] == {"transcript": "prompt_found"}
    again = session.call("prompt", prompt="whatever", key="k")
    assert (again["delivery"], again["turn_id"], again["evidence"]) == ("uncertain", "t1", end["evidence"])
    daemon.restart()
    assert session.call("prompt", prompt="whatever", key="k") == again
    waited: dict[str, Any] = session.ask("whatever", key="k")
    assert (waited["delivery"], waited["outcome"]) == ("uncertain", "failed")
    assert len(session.events("turn_started")) == 1
    assert session.ask("a new one", key="k2")["outcome"] == "completed"


def test_files_that_a_power_loss_has_emptied_still_show_that_the_cli_may_have_run(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/never\nan answer")
    session.cli()
    keeper = session.keeper()
    daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    for name in ("start.json", "intent.json"):  # neither is synced
        (session.dir / "runs" / "1" / name).write_bytes(b"")
    daemon.start()
    assert session.end_of("t1")["error"]["kind"] == "crashed"
    assert len(session.events("turn_started")) == 1 and not list((session.dir / "runs").glob("2"))


def test_without_a_transcript_that_is_what_is_said(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = lose(daemon, f"@no-transcript\n@wait-file {tmp_path}/never")
    assert session.end_of("t1")["evidence"] == {"transcript": "missing"}


def test_only_what_this_run_wrote_is_evidence(serve: Callable[..., Harness], tmp_path: Path) -> None:
    """The same words were prompted, and answered, one turn earlier."""
    daemon = serve()
    session = daemon.new()
    text = f"@wait-file {tmp_path}/go\nan answer"
    (tmp_path / "go").touch()
    assert session.ask(text)["outcome"] == "completed"
    (tmp_path / "go").unlink()
    turn = session.prompt(text, key="k")
    session.await_event("session_init", turn_id=turn)
    until(lambda: took(session, 2))
    os.kill(session.keeper(), signal.SIGKILL)
    assert session.end_of(turn)["evidence"] == {"transcript": "prompt_found"}


def test_a_turn_that_had_begun_to_answer_is_no_question(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@stream 5\n@wait-file {tmp_path}/never", key="k")
    session.cli()
    until(lambda: session.chunks())
    os.kill(session.keeper(), signal.SIGKILL)
    end = session.end_of("t1")
    assert end["error"]["kind"] == "crashed" and "delivery" not in end
    assert session.call("prompt", prompt="whatever", key="k")["delivery"] == "duplicate"


def test_an_interrupted_turn_is_no_question(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/never", key="k")
    session.cli()
    session.call("interrupt", mode="kill")
    assert "delivery" not in session.end_of("t1")
    assert session.call("prompt", prompt="whatever", key="k")["delivery"] == "duplicate"


def test_the_queue_survives_a_kill_with_its_order_and_its_keys(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\nfirst", key="k0")
    session.cli()
    answers = [session.call("prompt", prompt=f"answer {n}", key=f"k{n}") for n in range(1, 5)]
    assert [a["delivery"] for a in answers] == ["queued"] * 4
    for _ in range(2):
        daemon.restart()
        assert [turn["key"] for turn in session.get()["queue"]] == ["k1", "k2", "k3", "k4"]
    (tmp_path / "go").touch()
    for n, answer in enumerate(answers, start=1):
        end = session.end_of(answer["turn_id"])
        assert end["outcome"] == "completed" and end["text"].endswith(f"answer {n}")
    assert [e["turn_id"] for e in session.events("turn_started")] == ["t1", "t2", "t3", "t4", "t5"]

"""A new daemon decodes a running turn from its last checkpoint on, to the same events."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe

from clisup.backends.claude.decoder import ClaudeState
from clisup.backends.gemini.decoder import GeminiDecoder, GeminiState
from clisup.daemon.runs.checkpoint import CHECKPOINT_BYTES, Checkpoint, Checkpoints, unpack
from clisup.model.sessions.ledger import Position, TurnRecord
from clisup.store.session_dir import RunDir
from tests.checkpoints import checkpoint_with

LINES = 3000
"""Of `@stream`; they are some 800 KB, and so hold several checkpoints."""


def midway(daemon: Harness, *, text: str = "", **params: Any) -> SessionProbe:
    """A session in the middle of a long turn, with a checkpoint near the end of what it has said."""
    session = daemon.new(**params)
    session.prompt(f"{text}\n@stream {LINES} 80\n@wait-file go\n{text}\n@stream {LINES} 80\nthe end")
    until(lambda: session.chunks()[-1:] == [LINES - 1], "it does not say its first half", 60)
    assert file_of(session).stat().st_size < 10_000
    return session


def file_of(session: SessionProbe) -> Path:
    return session.dir / "runs/1/checkpoint"


def checkpoint_of(session: SessionProbe) -> Checkpoint:
    return unpack(file_of(session).read_bytes(), RunDir(str(session.dir / "runs/1")), ClaudeState)


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields of a checkpoint, as a process of the CLI can do it: the checksum is right."""
    data = path.read_bytes()
    fields = json.loads(data[18 : 18 + int(data[:8], 16)])
    body = json.dumps({**fields, **changes}).encode()
    path.write_bytes(b"%08x %08x\n" % (len(body), zlib.crc32(body)) + body)


def go(session: SessionProbe) -> list[dict[str, Any]]:
    """What the CLI said in the whole turn, once the turn is over."""
    (session.daemon.cwd / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert session.chunks() == [*range(LINES)] * 2
    named = ("seq", "ts", "session_id", "native_session_id")
    return [{k: v for k, v in e.items() if k not in named} for e in session.events() if e["source"] == "backend"]


def blank(spool: Path, size: int) -> None:
    """Nothing can be decoded from the first bytes of a spool any more."""
    with spool.open("r+b") as file:
        file.write(b"\n" * size)


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_a_new_daemon_reads_no_line_before_the_checkpoint(serve: Callable[..., Harness], mode: str) -> None:
    daemon = serve()
    undisturbed = go(midway(daemon, mode=mode))
    (daemon.cwd / "go").unlink()
    session = midway(daemon, mode=mode)
    daemon.kill()
    found = checkpoint_of(session)
    assert found.place["out"] > LINES * 80
    blank(session.dir / "runs/1/out.spool", found.place["out"])
    daemon.start()
    until(lambda: session.get()["state"] == "running", "nobody sees that it runs")
    assert go(session) == undisturbed
    assert not file_of(session).exists() or mode == "live"


def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Put something else in the place of the file."""

    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


def _deep(path: Path) -> None:
    rewrite(path, decoder=None)
    data = path.read_bytes()
    body = data[18:].replace(b'"decoder": null', b'"decoder": ' + b"[" * 200_000)
    path.write_bytes(b"%08x %08x\n" % (len(body), zlib.crc32(body)) + body)


SPOILS: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"x" * 500),
    "pickle": lambda path: path.write_bytes(b"cos\nsystem\n(S'touch pickled'\ntR."),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-300]),
    "huge": lambda path: os.truncate(path, 10**12),
    "a pipe": instead(os.mkfifo),
    "a directory": instead(Path.mkdir),
    "a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "a link": instead(lambda path: path.symlink_to(path.parent / "out.spool")),
    "deep": _deep,
    "behind the end": lambda path: rewrite(path, place={"out": 10**15, "err": 0}),
    "in a line": lambda path: rewrite(path, place={"out": 400_001, "err": 0}),
    "negative": lambda path: rewrite(path, place={"out": -1, "err": 0}),
    "unknown events": lambda path: rewrite(path, known=[0, 10**12, 3]),
    "another session": lambda path: rewrite(path, session="0" * 36),
    "another run": lambda path: rewrite(path, run=2),
    "wrong types": lambda path: rewrite(path, decoder={"messages": 7}),
    "frozen": lambda path: rewrite(path, tracker={"started": True, "blocked": True}),
}
"""What a process of the CLI can put in the place of its run's checkpoint."""


def ignored(daemon: Harness) -> dict[str, list[dict[str, Any]]]:
    """Return the log lines about ignored checkpoints, by session."""
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if "checkpoint ignored" in line]
    return {line["session"]: [other for other in lines if other["session"] == line["session"]] for line in lines}


@pytest.mark.parametrize("names", [list(SPOILS)[at::6] for at in range(6)], ids=", ".join)
def test_a_checkpoint_that_a_tool_has_changed_is_ignored_and_the_turn_decoded_again(
    serve: Callable[..., Harness], names: list[str]
) -> None:
    daemon = serve()
    intact, sessions = midway(daemon), {name: midway(daemon) for name in names}
    daemon.kill()
    for name, session in sessions.items():
        SPOILS[name](file_of(session))
    daemon.start()
    undisturbed = go(intact)
    assert intact.id not in ignored(daemon)
    for name, session in sessions.items():
        assert go(session) == undisturbed, name
        told = [event["message"] for event in session.events("notice") if event["code"] == "checkpoint_ignored"]
        assert len(told) == 1 and told[0].startswith("the turn is decoded from its start"), name
        (line,) = ignored(daemon)[session.id]
        assert line["level"] == "warning" and line["why"], name
    assert not list(daemon.root.rglob("pickled"))


def test_without_a_checkpoint_the_turn_is_decoded_again_and_nothing_is_said(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    intact, missing = midway(daemon), midway(daemon)
    daemon.kill()
    file_of(missing).unlink()
    daemon.start()
    assert go(missing) == go(intact) and not ignored(daemon)


def test_a_turn_that_goes_on_from_a_checkpoint_can_be_interrupted(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = midway(daemon, mode="live")
    daemon.restart()
    session.call("interrupt")
    assert session.end_of("t1")["outcome"] == "interrupted"
    assert session.chunks() == list(range(LINES))
    assert session.ask("again")["outcome"] == "completed"


def test_a_silent_turn_that_goes_on_from_a_checkpoint_is_in_its_phase(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"startup": 600, "model_idle": 3.0})
    session = midway(daemon)
    daemon.restart()
    assert session.end_of("t1")["error"]["kind"] == "idle_timeout"


def test_a_checkpoint_has_the_count_of_lines_that_nobody_can_read(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = midway(daemon, text="@noise")
    daemon.kill()
    assert checkpoint_of(session).unparsed == 3
    daemon.start()
    go(session)
    assert sum(event.get("lines") or 1 for event in session.events("unparsed")) == 6


@pytest.mark.parametrize("asked_first", [True, False])
def test_an_approval_before_or_after_a_checkpoint_is_asked_for_once(
    serve: Callable[..., Harness], asked_first: bool
) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    ask, said = '@run Bash {"command": "true"}', f"@stream {LINES} 80"
    session.prompt(f"{ask}\n{said}\n@wait-file go\n{said}" if asked_first else f"{said}\n{ask}\n{said}")
    approval = session.await_event("approval_requested")["approval_id"]
    if asked_first:
        daemon.call("approval/respond", session_id=session.id, approval_id=approval, decision="allow")
    until(lambda: session.chunks()[-1:] == [LINES - 1], "it does not say its first half", 60)
    daemon.kill()
    assert checkpoint_of(session).turn_id == "t1"
    daemon.start()
    if not asked_first:
        daemon.call("approval/respond", session_id=session.id, approval_id=approval, decision="allow")
    go(session)
    assert [session.types().count(f"approval_{what}") for what in ("requested", "resolved")] == [1, 1]


# -- a turn ------------------------------------------------------------------------------------------------------------


def turn(**changes: Any) -> TurnRecord:
    return TurnRecord(**{"id": "t1", "position": {"out": Position(3, 7, 1)}, **changes})


ENDING = {"ending": {"reason": "stop"}}


@pytest.mark.parametrize("other", [{"id": "t2"}, ENDING, {"position": {"out": Position(3, 7, 0)}}, {"position": {}}])
def test_a_checkpoint_is_for_its_turn_as_far_as_the_journal_has_it(other: dict[str, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))
    (tmp_path / "1").mkdir()
    (tmp_path / "1/out.spool").write_bytes(b"{1234}\n{5}\n")
    state = GeminiState(answer=["a"])
    assert checkpoints.load(turn(), GeminiDecoder()) == Checkpoint("t1", {"out": 0, "err": 0})
    checkpoints.save(checkpoint_with(state))
    decoder = GeminiDecoder()
    assert checkpoints.load(turn(), decoder) == checkpoint_with(state) and decoder.state == state
    decoder = GeminiDecoder()
    assert checkpoints.load(turn(**other), decoder).tracker is None and decoder.state == GeminiState()
    decoder.state = None  # type: ignore[assignment]
    assert checkpoints.load(turn(), decoder).tracker is None


def test_the_next_checkpoint_is_as_far_away_as_its_size_demands(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))
    (tmp_path / "1").mkdir()
    checkpoints.save(checkpoint_with(GeminiState(complaint="x" * CHECKPOINT_BYTES)))
    assert 16 * CHECKPOINT_BYTES < checkpoints.due_at < 18 * CHECKPOINT_BYTES


def test_a_disk_that_refuses_a_checkpoint_disturbs_no_turn(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))  # of a directory that is gone
    checkpoints.save(checkpoint_with(GeminiState()))
    assert checkpoints.load(turn(), GeminiDecoder()).tracker is None and checkpoints.due_at > CHECKPOINT_BYTES
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "1/checkpoint")
    checkpoints.save(checkpoint_with(GeminiState()))  # waits for no reader

"""A new daemon decodes a running turn from its last checkpoint on, to the same events."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from msgspec.structs import replace
from session_probe import SessionProbe

from clisup.backends.base import Decoded, Decoder
from clisup.daemon.runs import checkpoint
from clisup.daemon.runs.checkpoint import CHECKPOINT_BYTES, Checkpoint, Checkpoints, pack, unpack
from clisup.model.events import ApprovalResolved, SessionInit
from clisup.model.sessions.ledger import Position, TurnRecord
from clisup.policy.watchdog import PhaseTracker
from clisup.store.session_dir import RunDir
from tests.backends.recorded import PATHS, Recording, name_of

LINES = 3000
"""Of `@stream`; they are some 800 KB, and so hold several checkpoints."""


def of(state: dict[str, Any]) -> Checkpoint:
    tracker = PhaseTracker(started=True, tools={"toolu_1": "Bash"}, background={"task": None})
    return Checkpoint("t1", {"out": 7, "err": 0}, Position(3, 7, 1), state, tracker, 2, reset=True)


def stored(decoder: Decoder) -> dict[str, Any] | None:
    """The state of a decoder as the next daemon finds it."""
    data = pack(of(decoder.state))
    found = None if data is None else unpack(data)
    return None if found is None else found.decoder


# -- decoders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_decoder_goes_on_from_the_state_after_any_line(path: Path) -> None:
    """A state has no answered approvals. Nobody has to hear that the CLI no longer waits for them."""
    recording = Recording(path)
    adapter, request, carried = recording.adapter, recording.request, recording.carried
    decoder, got, handed_over = adapter.decoder(carried, request), list[Decoded](), 0
    for line in recording.lines():
        got.append(decoder.decode(line))
        if (state := stored(decoder)) is not None:
            decoder = adapter.decoder(carried, request)
            decoder.restore(state)
            handed_over += 1
    for one, undisturbed in zip(got, recording.decode(), strict=True):
        told = [event for event in undisturbed.events if not isinstance(event, ApprovalResolved)]
        replies = undisturbed.replies if len(told) == len(undisturbed.events) else one.replies
        assert replace(one, events=list(one.events)) == replace(undisturbed, events=told, replies=replies)
    begun = next((at for at, one in enumerate(got) if any(isinstance(e, SessionInit) for e in one.events)), len(got))
    assert handed_over >= len(got) - begun - 1


@pytest.mark.parametrize("name", ["acp/codex-acp-2.6.0/tool_ok", "codex/text", "codex-exec/text"])
def test_no_secret_of_a_request_is_part_of_a_state(name: str) -> None:
    recording = Recording.of(name)
    servers = {"here": {"command": "x", "env": {"KEY": "hidden-1"}}, "there": {"type": "http", "url": "https://h.idden",
               "headers": {"Authorization": "hidden-2"}}}  # fmt: skip
    request = dataclasses.replace(recording.request, prompt="hidden-3", system_prompt="hidden-4", mcp_servers=servers)
    decoder = recording.adapter.decoder(recording.carried, request)
    for line in recording.lines():
        decoder.decode(line)
        assert b"hidden" not in (pack(of(decoder.state)) or b"")


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    written = of({"_texts": ["a"], "_denied": {"Bash": None}})
    data = pack(written)
    assert data is not None and unpack(data) == written


def test_a_damaged_checkpoint_counts_as_none() -> None:
    data = pack(of({}))
    assert data is not None
    for end in range(len(data)):
        assert unpack(data[:end]) is None
    assert unpack(bytes(len(data))) is None


def test_a_checkpoint_of_other_code_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(of({}))
    monkeypatch.setattr(checkpoint, "_code", lambda: b"another digest")
    assert data is not None and unpack(data) is None


class _Calls:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("function", [os.mkdir, checkpoint.write_atomic, getattr])
def test_a_file_that_somebody_else_wrote_calls_no_function(function: Callable[..., Any], tmp_path: Path) -> None:
    path = str(tmp_path / "made")
    arguments = {os.mkdir: (path,), checkpoint.write_atomic: (path, b""), getattr: (path, "strip")}[function]
    data = pack(of({"_x": _Calls(function, *arguments)}))
    assert data is not None and unpack(data) is None
    assert not list(tmp_path.iterdir())


def test_a_state_that_is_too_large_or_has_a_function_is_not_stored() -> None:
    assert pack(of({"_text": "x" * checkpoint.LARGEST})) is None
    assert pack(of({"_then": lambda: None})) is None


# -- daemons -----------------------------------------------------------------------------------------------------------


def midway(daemon: Harness, *, text: str = "", **params: Any) -> SessionProbe:
    """A session in the middle of a long turn, with a checkpoint near the end of what it has said."""
    session = daemon.new(**params)
    session.prompt(f"{text}\n@stream {LINES} 80\n@wait-file go\n{text}\n@stream {LINES} 80\nthe end")
    until(lambda: session.chunks()[-1:] == [LINES - 1], "it does not say its first half", 60)
    assert file_of(session).stat().st_size < 10_000
    return session


def file_of(session: SessionProbe) -> Path:
    return session.dir / "runs/1/checkpoint"


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
    found = unpack(file_of(session).read_bytes())
    assert found is not None and found.place["out"] > LINES * 80
    blank(session.dir / "runs/1/out.spool", found.place["out"])
    daemon.start()
    until(lambda: session.get()["state"] == "running", "nobody sees that it runs")
    assert go(session) == undisturbed
    assert not file_of(session).exists() or mode == "live"


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 500)]
)
def test_without_a_good_checkpoint_the_whole_turn_is_decoded_again(
    serve: Callable[..., Harness], spoil: Callable[[Path], Any]
) -> None:
    daemon = serve()
    undisturbed = go(midway(daemon))
    (daemon.cwd / "go").unlink()
    session = midway(daemon)
    daemon.kill()
    spoil(file_of(session))
    daemon.start()
    assert go(session) == undisturbed


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
    found = unpack(file_of(session).read_bytes())
    assert found is not None and found.unparsed == 3
    daemon.start()
    go(session)
    assert sum(event.get("lines") or 1 for event in session.events("unparsed")) == 6


# -- a turn ------------------------------------------------------------------------------------------------------------


def turn(**changes: Any) -> TurnRecord:
    return TurnRecord(**{"id": "t1", "position": {"out": Position(3, 7, 1)}, **changes})


ENDING = {"ending": {"reason": "stop"}}


def test_no_checkpoint_is_due_while_an_approval_waits_or_the_turn_is_being_ended(tmp_path: Path) -> None:
    due = Checkpoints(RunDir(str(tmp_path / "1"))).are_due
    assert due(turn(), CHECKPOINT_BYTES) and not due(turn(), CHECKPOINT_BYTES - 1)
    assert not due(turn(approvals={"1:a": {"seq": 1, "tool_name": "Bash", "at": ""}}), CHECKPOINT_BYTES)
    assert not due(turn(**ENDING), CHECKPOINT_BYTES)


@pytest.mark.parametrize("other", [{"id": "t2"}, ENDING, {"position": {"out": Position(3, 7, 0)}}, {"position": {}}])
def test_a_checkpoint_is_for_its_turn_as_far_as_the_journal_has_it(other: dict[str, Any], tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))
    (tmp_path / "1").mkdir()
    assert checkpoints.load(turn()) == Checkpoint("t1", {"out": 0, "err": 0})
    checkpoints.save(of({"_text": "a"}))
    assert checkpoints.load(turn()) == of({"_text": "a"})
    assert checkpoints.load(turn(**other)).tracker is None


def test_the_next_checkpoint_is_as_far_away_as_its_size_demands(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))
    (tmp_path / "1").mkdir()
    checkpoints.save(of({"_text": "x" * CHECKPOINT_BYTES}))
    assert not checkpoints.are_due(turn(), 16 * CHECKPOINT_BYTES)
    assert checkpoints.are_due(turn(), 18 * CHECKPOINT_BYTES)


def test_a_disk_that_refuses_a_checkpoint_disturbs_no_turn(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RunDir(str(tmp_path / "1")))  # of a directory that is gone
    checkpoints.save(of({}))
    assert checkpoints.load(turn()).tracker is None and not checkpoints.are_due(turn(), CHECKPOINT_BYTES)

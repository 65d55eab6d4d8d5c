"""Recordings of the real CLIs, played to a real daemon: through keeper, spool and journal come the events that the decoder gives.

A sample of each kind: whatever of `SAMPLE` there is of its newest version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import Harness

from clisup.backends.recording import TurnRecording, dialogue, play
from clisup.backends.registry import get_adapter
from clisup.model.events import SessionInit
from clisup.policy.versions import in_range
from clisup.recordings.files import read_recording
from tests.backends.recorded import PATHS, name_of

PLAYER = [sys.executable, "-I", "-S", str(Path(__file__).parents[2] / "clisup" / "demo" / "__main__.py"), "--play"]
SAMPLE = ("text", "thinking", "reasoning", "tool_ok", "tool_denied", "http_401", "http_401_final", "background_bash",
          "cut", "cut_mid_stream", "bad_flag", "http_503_plain")  # fmt: skip
LOCAL = ("approval_id", "session_id", "seq", "ts", "turn_id", "source", "native_session_id", "blob")


def sample() -> list[Path]:
    newest = {path.parents[1]: path.parent for path in sorted(PATHS, key=lambda path: version(path.parent.name))}
    ended = [path for path in PATHS if path.stem in SAMPLE and newest[path.parents[1]] == path.parent]
    return [
        path
        for path in ended
        if "recorder" not in json.loads(path.with_suffix(".meta.json").read_text()).get("ended", "")
    ]


def version(name: str) -> list[int]:
    return [int(part) for part in name.split("-")[0].split(".") if part.isdecimal()]


SAMPLES = sample()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A daemon with a backend for each sample, whose CLI is the player."""
    tables = []
    for number, path in enumerate(SAMPLES):
        copy = tmp_path_factory.mktemp("recording") / "r.jsonl"
        recording = read_recording(path)
        meta = json.loads(path.with_suffix(".meta.json").read_text())
        said = dialogue(recording, get_adapter(recording.kind))
        copy.write_bytes(recording.data)
        copy.with_suffix(".meta.json").write_text(json.dumps({**meta, "kind": recording.kind, "said": said}))
        command = json.dumps([*PLAYER, str(copy), "0"])
        table = f'[backends.r{number}]\nkind = "{recording.kind}"\ncommand = {command}\nversions = ">=0"\n'
        trusted = 'setting_sources = "user,project"\n' if recording.kind == "opencode" else ""
        tables.append(table + trusted)
    daemon = Harness(raw="\n".join(tables))
    daemon.start()
    yield daemon
    daemon.close()


def bare(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in LOCAL}


def expected(recording: TurnRecording, native: str | None) -> list[dict[str, Any]]:
    """What the decoder gives, with `native` for the recorded session: the player says it so."""
    events = [event for played in play(recording, get_adapter(recording.kind)) for event in played.decoded.events]
    text = json.dumps([msgspec.to_builtins(event) for event in events])
    recorded = next((event.native_session_id for event in events if isinstance(event, SessionInit)), None)
    return [bare(event) for event in json.loads(text.replace(recorded, native) if recorded and native else text)]


def ends(recording: TurnRecording) -> list[tuple[Any, ...]]:
    found = [played.ended for played in play(recording, get_adapter(recording.kind)) if played.ended]
    return [(end.outcome, end.text, list(end.denied), end.error.kind if end.error else None) for end in found]


@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_a_played_recording_gives_the_decoders_events_through_the_whole_daemon(stage: Harness, path: Path) -> None:
    recording = read_recording(path)
    request = recording.request
    wanted = {"model": request.model, "permission_mode": request.permission_mode}
    session = stage.new(backend=f"r{SAMPLES.index(path)}", **{name: value for name, value in wanted.items() if value})
    turns = [f"t{number}" for number in range(1, len(ends(recording)) + 1)]
    session.prompt(request.prompt or "hello")
    told = [session.end_of(turn) for turn in turns]
    said = [bare(e) for e in session.events() if e["source"] == "backend" and e["type"] != "stderr"]
    assert said == expected(recording, session.get()["native_session_id"])
    assert [(e["outcome"], e["text"], e.get("denied", []), e.get("error", {}).get("kind")) for e in told] == ends(
        recording
    )


def test_every_kind_that_has_recordings_is_played() -> None:
    assert {path.parents[1].name for path in SAMPLES} == {path.parents[1].name for path in PATHS}
    assert len(SAMPLES) >= 5


def test_the_player_tells_the_recorded_version_in_the_words_of_its_cli(stage: Harness) -> None:
    """The adapter reads it, as far as it asks for one."""
    rows = {row["name"]: row for row in stage.call("backend/list")}
    for number, path in enumerate(SAMPLES):
        adapter = get_adapter(read_recording(path).kind)
        version = path.parent.name if adapter.version_args else None
        assert (rows[f"r{number}"]["supported"], rows[f"r{number}"]["version"]) == (True, version)
        assert version is None or in_range(version, adapter.default_versions)


COUNTED = [path for path in SAMPLES if path.parents[1].name in ("codex", "codex-exec") and path.stem == "text"]


@pytest.mark.parametrize("path", COUNTED, ids=name_of)
def test_a_cli_that_tells_tokens_and_no_cost_has_an_estimated_one(stage: Harness, path: Path) -> None:
    session = stage.new(backend=f"r{SAMPLES.index(path)}", model="gpt-5.2", budget={"usd": 100.0})
    end = session.end_of(session.prompt("hello"))
    usage = end["usage"]
    cost = usage["input_tokens"] * 1.75 + usage["cache_read_input_tokens"] * 0.175 + usage["output_tokens"] * 14
    assert usage["output_tokens"] > 0
    assert (end["cost_source"], end["cost_usd"]) == ("estimated", pytest.approx(cost / 1e6))
    assert session.get()["budget"]["used"]["usd"] == pytest.approx(cost / 1e6)


def test_both_ways_to_run_codex_are_among_them() -> None:
    assert {path.parents[1].name for path in COUNTED} == {"codex", "codex-exec"}


TALKS = [path for path in SAMPLES if path.parents[1].name in ("codex", "acp") and path.stem in ("text", "tool_ok")]


@pytest.mark.parametrize("path", TALKS, ids=name_of)
def test_a_dialogue_that_was_played_can_be_recorded_and_that_recording_played(stage: Harness, path: Path) -> None:
    """`clisup record` notes by itself what the CLI was told before it went on, and the player takes what it wrote."""
    request = read_recording(path).request
    wanted = {"model": request.model, "permission_mode": request.permission_mode}
    first = stage.new(backend=f"r{SAMPLES.index(path)}", **{name: value for name, value in wanted.items() if value})
    first.ask("hello")
    env = {**stage.env, "CLISUP_SOCKET": stage.socket, "CLISUP_CONFIG": str(stage.config)}
    again = stage.cwd / f"{path.parents[1].name}-{path.stem}.jsonl"
    command = [sys.executable, "-m", "clisup", "record", first.id, "-o", str(again), "--hide", "/dev/null"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    meta = json.loads(again.with_suffix(".meta.json").read_text())
    assert (meta["kind"], again.read_bytes()) == (path.parents[1].name, path.read_bytes())
    assert meta["said"] == [list(pair) for pair in dialogue(read_recording(path), get_adapter(meta["kind"]))]
    assert len(meta["said"]) > 2
    assert meta["timing"]
    out = subprocess.run([*PLAYER, str(again), "0"], input=b"", capture_output=True, timeout=40)
    assert out.stdout == path.read_bytes()


def test_dialogues_are_among_them() -> None:
    assert TALKS

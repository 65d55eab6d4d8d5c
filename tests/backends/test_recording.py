"""Reading recordings: what is none is said in words, and a good one is decoded as the daemon does it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.base import END_OF_INPUT, Carried, Decoded, Decoder, LaunchRequest, LaunchSpec
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.recording import TurnRecording, dialogue, parse_recording, play, signal_name, told
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from tests.backends.recorded import PATHS
from tests.backends.recorded import Recording as Recorded


def parse(data: bytes = b"", kind: str | None = "claude", **meta: Any) -> TurnRecording:
    return parse_recording(data, json.dumps(meta).encode(), name="x.jsonl", kind=kind)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b'{"exit_code": 1', "no JSON"),
        (b"[]", "no object"),
        (b'{"format": "one"}', "'format' is wrong"),
        (b'{"exit_code": "none"}', "'exit_code' is wrong"),
        (b'{"signal": "SIGNONE"}', "is no signal"),
        (b'{"signal": 999}', "is no signal"),
        (b'{"argv": 1}', "'argv' is wrong"),
        (b'{"timing": [[1, 2, 3]]}', "'timing.0' is wrong"),
        (b'{"timing": [[1, NaN]]}', "'timing.0.1' is wrong"),
        (b'{"timing": [[-1, 1]]}', "'timing.0.0' is wrong"),
        (b'{"duration_s": Infinity}', "'duration_s' is wrong"),
        (b'{"launch": {"prompt_file": "x"}}', "'launch.prompt_file' is no key"),
        (b'{"launch": {"cwd": 7}}', "'cwd' is wrong"),
        (b'{"carried": {"cost": 7}}', "'carried.cost' is no key"),
        (b'{"carried": {"usage": 7}}', "'usage' is wrong"),
        (b'{"ending": {"reason": "x", "error": {"kind": "x"}}}', "'ending.error.kind' is wrong"),
        (b'{"ending": {"limit_s": 1}}', "'ending.reason' is wrong"),
    ],
)
def test_a_foreign_or_truncated_meta_file_is_refused_and_the_place_is_named(meta: bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_recording(b"", meta, name="x.jsonl", kind="claude")
    assert refused.value.kind == "usage"
    assert refused.value.message.startswith("cannot read the recording x.jsonl, because ")
    assert said in refused.value.message
    assert refused.value.hint


def test_a_recording_of_a_later_format_is_refused_whole() -> None:
    with pytest.raises(UsageError, match="a newer clisup made it") as refused:
        parse(format=2, exit_code="who knows")
    assert refused.value.kind == "unsupported"


def test_a_kind_is_needed_and_that_of_the_file_counts_first() -> None:
    with pytest.raises(UsageError, match="no kind"):
        parse(kind=None)
    assert parse(kind="claude").kind == "claude"
    assert parse_recording(b"", b'{"kind": "demo"}', name="x", kind="claude").kind == "demo"


def test_what_is_left_out_is_a_fresh_session_that_left_by_itself() -> None:
    recording = parse(prompt="hi")
    assert (recording.request.prompt, recording.request.resume, recording.request.cwd) == ("hi", False, "/scratch/cwd")
    assert (recording.carried.cost_usd, recording.exit.reason) == (0.0, "exit")


def test_unknown_running_totals_stay_unknown() -> None:
    assert parse(carried={"cost_usd": None, "usage": None, "background": {"b": "shell"}}).carried == Carried(
        None, None, {"b": "shell"}
    )


def test_older_recordings_name_background_tasks_without_their_kinds() -> None:
    assert parse(carried={"background": ["b"]}).carried.background == {"b": None}


def test_a_cut_or_foreign_output_is_decoded_as_far_as_it_goes() -> None:
    """The daemon would do the same: what it cannot read is kept as unparsed, and the turn has an end."""
    whole = next(path for path in PATHS if path.stem == "text").read_bytes()
    for data in (b"", b"\0", b"no recording\n", whole[: len(whole) // 2], whole[:100], b"[" * 100_000 + b"\n"):
        events = told(parse(data), ClaudeAdapter())
        assert [event.type for event in events].count("turn_completed") == 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_shipped_recording_is_played_line_by_line_and_each_turn_ends_once(path: Any) -> None:
    """Turns that the CLI began by itself get a decoder of their own; no event is lost or made by that."""
    recorded = Recorded(path)
    played = list(play(recorded.file, recorded.adapter))
    assert [one.line for one in played if one.line] == recorded.lines()
    assert not any(one.line for one in played[len(recorded.lines()) :])
    assert played[-1].ended is not None
    types = [event.type for one in played for event in one.decoded.events]
    assert types == [event.type for event in recorded.events()]


class _Talker(Decoder):
    """Replies one line to each line of the CLI, and closes stdin at `bye`."""

    def decode(self, line: Line) -> Decoded:
        if line.data == b"quiet":
            return Decoded(())
        return Decoded((), replies=[END_OF_INPUT] if line.data == b"bye" else ["one\n"])


class _TalkerAdapter(AcpAdapter):
    """A made-up CLI that gets two lines at its start."""

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        return LaunchSpec(argv=request.command, stdin="a\nb\n", stdin_eof=False)

    def decoder(self, carried: Carried, request: LaunchRequest) -> Any:
        return _Talker()


def test_a_dialogue_says_how_much_the_cli_was_told_before_it_went_on() -> None:
    assert dialogue(parse(b"x\nquiet\ny\nbye\n"), _TalkerAdapter()) == [(0, 2), (2, 3), (10, 4), (14, None)]
    assert dialogue(parse(b"x\n", prompt="hi"), ClaudeAdapter()) == [(0, None)]
    assert dialogue(parse(b"x\n", prompt=""), ClaudeAdapter()) == []  # claude takes no empty prompt


def test_signals_have_their_names() -> None:
    assert parse(signal=15).exit == parse(signal="SIGTERM").exit
    assert (signal_name(15), signal_name(None), signal_name(40)) == ("SIGTERM", None, "SIGRTMIN")

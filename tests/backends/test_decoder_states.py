"""A decoder continues from a stored state with the same events. A stored state is data, and hostile values break nothing."""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from clisup.backends.base import Decoded, Decoder
from clisup.backends.gemini.decoder import GeminiState
from clisup.daemon.runs import checkpoint
from clisup.daemon.runs.checkpoint import CheckpointRefusedError, pack, unpack
from clisup.model.events import ApprovalResolved
from clisup.store.session_dir import RunDir
from tests.backends.recorded import PATHS, Recording, name_of
from tests.checkpoints import RUN, checkpoint_with


def stored(decoder: Decoder) -> Struct | None:
    """Return the state of a decoder as the next daemon finds it."""
    data = pack(checkpoint_with(decoder.state), RUN)
    return None if data is None else unpack(data, RUN, type(decoder.state)).decoder  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_decoder_goes_on_from_the_state_after_any_line(path: Path) -> None:
    """A state has no answered approvals. Nobody has to hear that the CLI no longer waits for them."""
    recording = Recording(path)
    adapter, request, carried = recording.adapter, recording.request, recording.carried
    decoder, got = adapter.decoder(carried, request), list[Decoded]()
    for line in recording.lines():
        got.append(decoder.decode(line))
        state = stored(decoder)
        assert state is not None and state == decoder.state
        decoder = adapter.decoder(carried, request)
        decoder.restore(state)
    if (settled := decoder.settle()) is not None:
        got.append(settled)
    for one, undisturbed in zip(got, recording.decode(), strict=True):
        told = [event for event in undisturbed.events if not isinstance(event, ApprovalResolved)]
        replies = undisturbed.replies if len(told) == len(undisturbed.events) else one.replies
        assert replace(one, events=list(one.events)) == replace(undisturbed, events=told, replies=replies)


@pytest.mark.parametrize("name", ["acp/codex-acp-2.6.0/tool_ok", "codex/text", "codex-exec/text"])
def test_no_secret_of_a_request_is_part_of_a_state(name: str) -> None:
    recording = Recording.of(name)
    servers = {"here": {"command": "x", "env": {"KEY": "hidden-1"}}, "there": {"type": "http", "url": "https://h.idden",
               "headers": {"Authorization": "hidden-2"}}}  # fmt: skip
    request = dataclasses.replace(recording.request, prompt="hidden-3", system_prompt="hidden-4", mcp_servers=servers)
    decoder = recording.adapter.decoder(recording.carried, request)
    for line in recording.lines():
        decoder.decode(line)
        assert b"hidden" not in (pack(checkpoint_with(decoder.state), RUN) or b"")


# -- files -------------------------------------------------------------------------------------------------------------

STATE = GeminiState(answer=["a"], denied={"Bash": None})


def packed(**changes: Any) -> bytes:
    """Return a checkpoint in which a process of the CLI has changed some fields, with the right checksum."""
    data = pack(checkpoint_with(STATE), RUN)
    assert data is not None
    return sealed(json.dumps({**json.loads(data[checkpoint._HEAD :]), **changes}).encode())


def sealed(body: bytes) -> bytes:
    return b"%08x %08x\n" % (len(body), zlib.crc32(body)) + body


def refusal(data: bytes, run: RunDir = RUN) -> CheckpointRefusedError:
    with pytest.raises(CheckpointRefusedError) as refused:
        unpack(data, run, GeminiState)
    return refused.value


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    written = checkpoint_with(STATE)
    data = pack(written, RUN)
    assert data is not None and unpack(data + b"rest of an older one", RUN, GeminiState) == written
    assert unpack(packed(), RUN, GeminiState) == written


def test_a_damaged_checkpoint_is_refused() -> None:
    data = packed()
    for end in range(len(data)):
        refusal(data[:end])
        refusal(data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :])
    refusal(bytes(len(data)))


def test_a_checkpoint_of_other_code_is_refused_and_nothing_is_wrong_with_it() -> None:
    assert refusal(packed(code="another digest")).expected
    assert refusal(packed(format=3)).expected
    assert not refusal(packed(format="3")).expected


def test_the_code_is_that_which_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install -U` replaces the files while the daemon runs. What that daemon writes is not for the new code."""
    written, loaded = packed(), checkpoint.CODE
    monkeypatch.setattr("clisup.__version__", "9.9.9")
    assert json.loads(packed()[checkpoint._HEAD :])["code"] == loaded != checkpoint._code()
    monkeypatch.setattr(checkpoint, "CODE", checkpoint._code())
    assert refusal(written).expected


def test_a_checkpoint_of_another_session_or_run_is_refused() -> None:
    for path in ("/nowhere/sessions/other/runs/1", "/nowhere/sessions/s/runs/2"):
        assert not refusal(packed(), RunDir(path)).expected


TRACKER: dict[str, Any] = {"started": True}
WRONG: list[dict[str, Any]] = [
    {"place": {"out": "7", "err": 0}}, {"place": {"out": 7}}, {"known": {"end": 7}}, {"unparsed": -1},
    {"unparsed": 1.5}, {"unparsed": 10**30}, {"reset": None}, {"turn_id": 1}, {"run": True}, {"decoder": []}, {"decoder": None},
    {"decoder": {"answer": [1]}}, {"decoder": {"message": {"id": "x", "index": 2**60}}}, {"decoder": {"denied": {"a": 1}}},
    {"tracker": {"started": False}}, {"tracker": TRACKER | {"finished": True}}, {"tracker": TRACKER | {"resting": True}},
    {"tracker": TRACKER | {"blocked": True}}, {"tracker": TRACKER | {"approvals": ["a"]}}, {"tracker": {}},
    {"tracker": TRACKER | {"repeats": {"kind": "no such kind", "message": ""}}},
]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG, ids=json.dumps)
def test_a_checkpoint_with_a_wrong_value_is_refused(changes: dict[str, Any]) -> None:
    assert not refusal(packed(**changes)).expected


def test_deep_nesting_and_odd_numbers_are_refused() -> None:
    body = packed()[checkpoint._HEAD :]
    for odd in (b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300, b"NaN", b"1e999", b"-Infinity", b"9" * 5000):
        refusal(sealed(body.replace(b'"Bash": null', b'"Bash": null, "x": ' + odd)))
        refusal(sealed(b'{"x": ' + odd + b", " + body[1:]))


@pytest.mark.parametrize("data", [b"cos\nsystem\n(S'true'\ntR.", b"\x80\x05c__builtin__\neval\n."])
def test_a_file_with_code_is_no_checkpoint(data: bytes) -> None:
    refusal(data)
    refusal(sealed(data))


def test_a_state_that_is_too_large_or_holds_half_a_character_is_not_stored() -> None:
    assert pack(checkpoint_with(None), RUN) is None
    assert pack(checkpoint_with(GeminiState(complaint="x" * checkpoint.LARGEST)), RUN) is None
    assert pack(checkpoint_with(GeminiState(complaint="\ud83d")), RUN) is None
    assert len(msgspec.json.encode(STATE)) < len(packed())

"""A decoder goes on from a stored state, to the same events."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clisup.backends.base import Decoded, Decoder
from clisup.daemon.runs import checkpoint
from clisup.daemon.runs.checkpoint import pack, unpack
from clisup.model.events import ApprovalResolved, SessionInit
from tests.backends.recorded import PATHS, Recording, name_of
from tests.checkpoints import checkpoint_with


def stored(decoder: Decoder) -> dict[str, Any] | None:
    """The state of a decoder as the next daemon finds it."""
    data = pack(checkpoint_with(decoder.state))
    found = None if data is None else unpack(data)
    return None if found is None else found.decoder


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
        assert b"hidden" not in (pack(checkpoint_with(decoder.state)) or b"")


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    written = checkpoint_with({"_texts": ["a"], "_denied": {"Bash": None}})
    data = pack(written)
    assert data is not None and unpack(data) == written


def test_a_damaged_checkpoint_counts_as_none() -> None:
    data = pack(checkpoint_with({}))
    assert data is not None
    for end in range(len(data)):
        assert unpack(data[:end]) is None and unpack(data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]) is None
    assert unpack(bytes(len(data))) is None


def test_a_checkpoint_of_other_code_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(checkpoint_with({}))
    monkeypatch.setattr(checkpoint, "_code", lambda: b"another digest")
    assert data is not None and unpack(data) is None


@pytest.mark.parametrize(
    "name", ["os mkdir", "clisup.host.files make_private_dir", "clisup.backends.demo glob.os.mkdir"]
)
def test_a_file_that_somebody_else_wrote_calls_no_function(name: str, tmp_path: Path) -> None:
    module, _, function = name.partition(" ")
    path = str(tmp_path / "made").encode()
    call = b"\x80\x05c%b\n%b\n\x8c%c%b\x85R." % (module.encode(), function.encode(), len(path), path)
    assert unpack(checkpoint._head(call) + call) is None
    assert not list(tmp_path.iterdir())
    pickle.loads(call)
    assert list(tmp_path.iterdir())


def test_a_state_that_is_too_large_or_has_a_function_is_not_stored() -> None:
    assert pack(checkpoint_with({"_text": "x" * checkpoint.LARGEST})) is None
    assert pack(checkpoint_with({"_then": lambda: None})) is None

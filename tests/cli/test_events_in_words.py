"""`clisup logs` and its words: a line for every type of event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_daemon import SESSION, FakeDaemon, Peer

from clisup.cli.describe import WORDS, event_line, words
from clisup.core.events import EVENT_TYPES

Run = Callable[..., Any]

LEAST: dict[str, dict[str, Any]] = {
    "prompt_accepted": {"delivery": "queued"}, "turn_started": {"run": 1}, "process_started": {"pid": 1},
    "content_delta": {"kind": "text", "text": "x"}, "tool_use": {"tool_use_id": "u", "name": "Bash"},
    "tool_result": {"tool_use_id": "u"}, "permission_denied": {"name": "Bash"}, "usage": {"usage": {}},
    "rate_limit": {"status": "rejected"}, "task": {"task_id": "x", "state": "running"},
    "approval_requested": {"approval_id": "a", "tool_name": "Bash"}, "approval_resolved": {"approval_id": "a", "decision": "deny"},
    "status": {"status": "requesting"}, "stderr": {"text": "x"}, "watchdog": {"action": "fired", "phase": "model"},
    "turn_completed": {"outcome": "failed"}, "unparsed": {"reason": "malformed", "bytes": 3},
    "notice": {"code": "c", "message": "m"}, "gap": {"from_seq": 1, "to_seq": 2},
}  # fmt: skip


@pytest.mark.parametrize("type_", [*EVENT_TYPES, "gap"])
def test_every_type_has_words_also_where_only_the_required_fields_are_there(type_: str) -> None:
    assert type_ in WORDS
    line = event_line({"type": type_, **LEAST.get(type_, {})})
    assert "\n" not in line
    assert type_ in line


def test_a_type_of_a_newer_daemon_is_shown_as_it_is() -> None:
    assert words({"type": "hologram", "seq": 1, "depth": 3}) == '{"depth": 3}'


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "tool_use", "name": "Bash", "input": {"command": "ls\n-la"}}, "Bash ls -la"),
        ({"type": "tool_use", "name": "Odd", "input": {"n": 1}}, 'Odd {"n": 1}'),
        ({"type": "stderr", "text": "\033[31mred\a"}, "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}"),
        ({"type": "process_exited", "signal": 9, "ended_by": "watchdog:model", "survivors": [{}]},
         "signal 9, ended by watchdog:model, 1 processes had outlived it"),
        ({"type": "turn_completed", "outcome": "completed", "duration_s": 2.31, "usage": {"output_tokens": 1200}, "cost_usd": 0.01},
         "completed, after 2.3 s, 1.2k tokens, $0.0100"),
        ({"type": "message", "blocks": [{"kind": "text", "text": "Hi"}, {"kind": "tool_use", "name": "Bash"}]}, "Hi [Bash]"),
    ],
)  # fmt: skip
def test_words_say_what_counts(event: dict[str, Any], expected: str) -> None:
    assert words(event) == expected


def test_long_text_is_clipped_to_a_line() -> None:
    assert words({"type": "stderr", "text": "x" * 100_000}) == "x" * 199 + "…"


@pytest.fixture
def history(daemon: FakeDaemon) -> FakeDaemon:
    for n in range(1200):
        daemon.emit("content_delta", kind="text", text=f"piece {n}")
    daemon.emit("message", message_id="m", blocks=[{"kind": "text", "text": "all of it"}])
    return daemon


def test_logs_read_page_after_page_to_the_end(clisup: Run, history: FakeDaemon) -> None:
    ran = clisup("logs", "3f2a")
    assert (ran.code, len(ran.out.splitlines())) == (0, 1201)
    assert ran.out.splitlines()[-1].endswith("message             t1    all of it")
    assert len(history.calls("session/events")) == 3


def test_logs_without_deltas_keep_the_messages(clisup: Run, history: FakeDaemon) -> None:
    assert len(clisup("logs", "--no-deltas", "3f2a").out.splitlines()) == 1


def test_logs_as_json_are_the_envelopes(clisup: Run, history: FakeDaemon) -> None:
    assert [json.loads(line) for line in clisup("logs", "--json", "3f2a").out.splitlines()] == history.events


def test_raw_logs_are_the_lines_of_the_cli(clisup: Run, daemon: FakeDaemon) -> None:
    daemon.emit("message", blocks=[], native='{"type":"assistant"}')
    daemon.emit("notice", code="of the daemon", message="has no line")
    daemon.emit("tool_use", tool_use_id="u", name="Bash", native='{"type":"assistant"}')
    daemon.emit("stderr", text="again", native="again")
    daemon.emit("stderr", text="again", native="again")
    assert clisup("logs", "--raw", "3f2a").out == '{"type":"assistant"}\nagain\nagain\n'
    assert daemon.calls("session/events")[0]["raw"] is True


def test_following_shows_what_is_stored_and_what_comes(clisup: Run, daemon: FakeDaemon) -> None:
    def subscribe(peer: Peer, params: dict[str, Any]) -> Any:
        peer.following = True
        peer.event(daemon.events[0])
        daemon.emit("notice", code="new", message="")
        peer.send(
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "enough", "data": {"kind": "internal"}}}
        )
        return {"next_seq": 3, "first_seq": 1}

    daemon.emit("notice", code="old", message="")
    daemon.handlers["session/subscribe"] = subscribe
    ran = clisup("logs", "-f", "--no-deltas", SESSION)
    assert [line.split()[-1] for line in ran.out.splitlines()] in (["old:", "new:"], [])
    assert daemon.calls("session/subscribe")[0] == {
        "session_id": SESSION,
        "after_seq": 0,
        "raw": False,
        "deltas": False,
    }

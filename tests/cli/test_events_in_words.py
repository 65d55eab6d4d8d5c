"""Events in words: a line for every type."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.cli.views.events import WORDS, event_line, words
from clisup.model.events import EVENT_TYPES

LEAST: dict[str, dict[str, Any]] = {
    "prompt_accepted": {"delivery": "queued"}, "turn_started": {"run": 1}, "process_started": {"pid": 1},
    "content_delta": {"kind": "text", "text": "x"}, "tool_use": {"tool_use_id": "u", "name": "Bash"},
    "tool_result": {"tool_use_id": "u"}, "permission_denied": {"name": "Bash"}, "usage": {"usage": {}},
    "rate_limit": {"status": "rejected"}, "task": {"task_id": "x", "state": "running"},
    "approval_requested": {"approval_id": "a", "tool_name": "Bash"}, "approval_resolved": {"approval_id": "a", "decision": "deny"},
    "status": {"status": "requesting"}, "stderr": {"text": "x"}, "watchdog": {"action": "fired", "phase": "model"},
    "turn_completed": {"outcome": "failed"}, "unparsed": {"reason": "malformed", "bytes": 3},
    "session_seeded": {"messages": 2},
    "session_forked": {"source_session_id": "s", "whole": True},
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
        ({"type": "tool_use", "name": "AskUserQuestion", "input": {"questions": [{"question": "Which?"}]}}, "AskUserQuestion Which?"),
        ({"type": "tool_use", "name": "Odd", "input": {"questions": [7]}}, 'Odd {"questions": [7]}'),
        ({"type": "tool_use", "name": "Odd", "input": {"n": 1}}, 'Odd {"n": 1}'),
        ({"type": "turn_started", "run": 2, "prompt_preview": "Look."}, "run 2: Look."),
        ({"type": "turn_started", "run": 2, "prompt_preview": "Look.", "prompt_images": 2}, "run 2: [2 images], Look."),
        ({"type": "prompt_accepted", "delivery": "steered", "text": "Stop\nthere.", "images": 1}, "steered: [1 image], Stop there."),
        ({"type": "prompt_accepted", "delivery": "steered"}, "steered: a prompt whose words are not kept"),
        ({"type": "prompt_accepted", "delivery": "delivered", "text": "Look."}, "delivered"),
        ({"type": "prompt_accepted", "delivery": "queued", "position": 2, "text": "And then?"}, "queued, at 2: And then?"),
        ({"type": "prompt_accepted", "delivery": "queued", "position": 2}, "queued, at 2"),
        ({"type": "stderr", "text": "\033[31mred\a"}, "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}"),
        ({"type": "process_exited", "signal": 9, "ended_by": "watchdog:model", "survivors": [{}]},
         "signal 9, ended by watchdog:model, 1 processes had outlived it"),
        ({"type": "turn_completed", "outcome": "completed", "duration_s": 2.31, "usage": {"output_tokens": 1200}, "cost_usd": 0.01},
         "completed, after 2.3 s, 1.2k tokens, $0.0100"),
        ({"type": "turn_completed", "outcome": "completed", "usage": {"output_tokens": 5}, "cost_usd": 0.01, "cost_source": "estimated"},
         "completed, 5 tokens, $0.0100 (estimated)"),
        ({"type": "turn_completed", "outcome": "failed", "delivery": "uncertain", "evidence": {"transcript": "missing"}},
         "failed, - tokens, delivery uncertain (it has no transcript of this session)"),
        ({"type": "gap", "from_seq": 1, "to_seq": 7, "reason": "retention"}, "events 1 to 7 were removed by retention"),
        ({"type": "gap", "from_seq": 2, "to_seq": 3, "reason": "damaged"},
         "events 2 to 3 cannot be read: the journal is damaged there"),
        ({"type": "message", "blocks": [{"kind": "text", "text": "Hi"}, {"kind": "tool_use", "name": "Bash"}]}, "Hi [Bash]"),
    ],
)  # fmt: skip
def test_words_say_what_counts(event: dict[str, Any], expected: str) -> None:
    assert words(event) == expected


def test_long_text_is_clipped_to_a_line() -> None:
    assert words({"type": "stderr", "text": "x" * 100_000}) == "x" * 199 + "…"

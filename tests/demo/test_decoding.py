"""The demo's frames are claude's: its decoder understands all of them, apart from those that are spoilt on purpose."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

import pytest

from clisup.backends.base import Carried, Terminal
from clisup.backends.demo import DemoAdapter
from clisup.model.events import EventBase, Unparsed
from clisup.model.lines.framing import LineFramer

if TYPE_CHECKING:
    from tests.demo.conftest import Demo

SOUND = (
    "hello", "@text a\n@stream 3\n@think hm", "@huge 100000", "@cut", '@structured {"a": 1}\n@usage 1 2\n@cost 3',
    '@tool Read {"a": 1} => x', "@bash echo hi; exit 3", "@heartbeat 0.01\n@bash sleep 0.05",
    "@bash timeout=0.01 sleep 0.05", "@parallel\n@tool A\n@bash echo\n@end", '@denied Write {"file_path": "x"}',
    "@background 0 done", "@sleep 0", "@pings 0 2", "@touch x\n@wait-file x", "@linger 0", "@retry server 1",
    "@ignore-term\n@ignore-int", "@orphan plain 0", "@line 1000", "@stderr x\n@stderr-flood 10",
    "@env HOME\n@env-all\n@say-pid\n@count\n@recall\n@no-transcript", "@exit 3", "@die KILL",
)  # fmt: skip
SPOILT = {"@raw no": 1, "@noise": 3, "@drip 0 18": 1, "@unknown": 1, "@crash": 1, "@misshapen": 1}


def decode(stdout: bytes) -> tuple[list[EventBase], list[Terminal]]:
    decoder = DemoAdapter().decoder(Carried())
    framer = LineFramer()
    lines = framer.feed(stdout)
    last = framer.close()
    done = [decoder.decode(line) for line in (*lines, *([last] if last else []))]
    return [event for decoded in done for event in decoded.events], [d.terminal for d in done if d.terminal]


@pytest.mark.parametrize("script", SOUND)
def test_a_sound_script_decodes_whole(demo: Demo, script: str) -> None:
    run = demo.run(script)
    events, terminals = decode(run.stdout)
    assert [event for event in events if isinstance(event, Unparsed)] == []
    assert len(terminals) == len(run.results)


@pytest.mark.parametrize(("script", "at_least"), SPOILT.items())
def test_a_spoilt_line_is_kept_as_unparsed(demo: Demo, script: str, at_least: int) -> None:
    events, _ = decode(demo.run(script).stdout)
    assert sum(isinstance(event, Unparsed) for event in events) >= at_least


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("authentication", "authentication"), ("login", "authentication"), ("rate_limit", "rate_limit"),
        ("usage_limit", "quota_exceeded"), ("overloaded", "overloaded"), ("server", "server"), ("network", "network"),
        ("billing", "quota_exceeded"), ("context", "context_overflow"), ("model_not_found", "model_not_found"),
        ("invalid_request", "invalid_request"), ("refusal", "refusal"), ("max_turns", "max_turns"), ("budget", "budget"),
    ],
)  # fmt: skip
def test_a_failure_decodes_to_its_kind(demo: Demo, kind: str, expected: str) -> None:
    _, terminals = decode(demo.run(f"@error {kind}").stdout)
    assert terminals[-1].error is not None
    assert terminals[-1].error.kind == expected


def test_the_adapter_points_at_the_demo(demo: Demo) -> None:
    adapter = DemoAdapter()
    run = demo.run("", *adapter.version_args, base=())
    assert adapter.parse_version(run.stdout.decode()) == "1.0.0"
    assert adapter.parse_version("2.1.329 (Claude Code)") is None
    assert adapter.kind == "demo"


def test_the_transcript_lies_where_the_adapter_says(demo: Demo) -> None:
    session = "00000000-0000-4000-8000-000000000001"
    demo.run("hello", "--session-id", session)
    pattern = DemoAdapter().transcript_pattern(session, demo.env)
    assert pattern is not None
    assert len(glob.glob(pattern)) == 1
    assert DemoAdapter().transcript_pattern(session, {}) is None

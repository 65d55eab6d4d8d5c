"""Kills at random moments against the strongest statement there is: the journal holds what the spool says, no more, no less."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import Harness, until
from msgspec.structs import replace
from session_probe import SessionProbe

from clisup.backends.base import Carried
from clisup.backends.registry import get_adapter
from clisup.model.lines.framing import LineFramer

SCRIPT = """Some text.
@think a thought
@stream 2500 40
@tool Read {"file_path": "/x"} => content
@noise
@stderr a line on stderr
@parallel
@tool A {} => one
@tool B {} => two
@end
@unknown
@cut
@stream 60 400 0.01
@misshapen
@bad
@line 90000
@bash sleep 0.4; echo done
@retry overloaded 2
@stream 2500 40
@bash sleep 0.4; echo done
@stream 100 40 0.01
The last words.
"""


def _by_decoder(session: SessionProbe) -> list[dict[str, Any]]:
    """What the adapter's decoder makes of the spool, in one go. A run whose CLI never came to be has been replaced."""
    run = max(int(path.name) for path in (session.dir / "runs").iterdir())
    framer, decoder = LineFramer(), get_adapter("demo").decoder(Carried(cost_usd=0.0))
    data = (session.dir / f"runs/{run}/out.spool").read_bytes()
    lines = framer.feed(data)
    events = [event for line in lines for event in decoder.decode(line).events]
    return [msgspec.to_builtins(replace(event, blob=None) if hasattr(event, "blob") else event) for event in events]


def _by_journal(session: SessionProbe) -> list[dict[str, Any]]:
    envelope = ("session_id", "seq", "ts", "turn_id", "source", "blob")
    events = [e for e in session.events() if e["source"] == "backend" and e["type"] != "stderr"]
    return [{name: value for name, value in event.items() if name not in envelope} for event in events]


@pytest.mark.fault(1)
@pytest.mark.parametrize("seed", range(2))
def test_the_journal_is_the_spool_whatever_was_killed_when(serve: Callable[..., Harness], seed: int) -> None:
    daemon = serve(daemon={"segment_bytes": 65536})
    session = daemon.new()
    session.prompt(SCRIPT)
    chance = random.Random(seed)
    while not session.events("turn_completed"):
        time.sleep(chance.uniform(0, 0.15))  # random moments are the point
        daemon.kill()
        if chance.random() < 0.4:
            daemon.process = daemon.launch()
            time.sleep(chance.uniform(0.2, 0.6))  # one that dies in its start, or while it adopts
            daemon.kill()
        daemon.start()
    end = session.end_of("t1")
    assert end["outcome"] == "completed" and "The last words." in end["text"]
    journal, decoded = _by_journal(session), _by_decoder(session)
    assert json.loads(json.dumps(journal)) == json.loads(json.dumps(decoded, ensure_ascii=True))
    assert len(session.events("stderr")) == 1
    for once in ("turn_started", "process_started", "process_exited", "prompt_accepted"):
        assert session.types().count(once) == 1, once


@pytest.mark.fault(1)
@pytest.mark.fault(33)
def test_kills_around_the_birth_of_a_follow_up_lose_neither_answer(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(10)]
    for n, session in enumerate(sessions):
        session.prompt(f"@background {0.8 + n * 0.15} follow-up\nanswered")
    chance = random.Random(7)
    while any(not session.events("turn_completed") for session in sessions):
        time.sleep(chance.uniform(0, 0.1))
        daemon.restart()
    for session in sessions:
        assert [e["text"] for e in session.events("turn_completed")] == ["follow-up"]
        said = [e["blocks"][0].get("text") for e in session.events("message")]
        assert [text for text in said if text] == ["answered", "follow-up"]


@pytest.mark.fault(2)
def test_a_queue_goes_through_random_kills_each_turn_once(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    chance, keys = random.Random(3), [f"key-{n}" for n in range(8)]
    for key in keys:
        session.prompt(f"@bash echo {key} >> {tmp_path}/ran\n{key}", key=key)
    while len(session.events("turn_completed")) < len(keys):
        time.sleep(chance.uniform(0, 0.2))
        daemon.restart()
        assert session.call("prompt", prompt="again", key=chance.choice(keys))["delivery"] == "duplicate"
    assert [e["text"] for e in session.events("turn_completed")] == keys
    assert (tmp_path / "ran").read_text().split() == keys


def _struck(daemon: Harness, failpoint: str, prompt: str) -> SessionProbe:
    """A session whose daemon died at a failpoint, and the next daemon."""
    daemon.env["CLISUP_FAILPOINTS"] = f"{failpoint}=kill"
    daemon.start()
    session = daemon.new()
    session.prompt(prompt)
    assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    daemon.kill()
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon.start()
    return session


@pytest.mark.fault(1)
def test_why_a_run_is_ended_is_journaled_before_its_keeper_hears_of_it(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False, timeouts={"model_idle": 0.6, "int_grace": 0.1, "term_grace": 0.1})
    session = _struck(daemon, "keeper.order.before", "@ignore-int\n@ignore-term\na word\n@stall")
    assert session.end_of("t1")["outcome"] == "timed_out"
    codes = [event.get("code", event.get("action")) for event in session.events() if event["source"] == "daemon"]
    assert [code for code in codes if code in ("fired", "ending", "adopted")] == ["fired", "ending", "adopted"]


def test_a_prompt_does_not_outlive_its_turn_though_the_daemon_died_in_between(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    session = _struck(daemon, "end.after", "hello")
    assert session.end_of("t1")["outcome"] == "completed"
    until(lambda: not list((session.dir / "prompts").iterdir()))
    assert session.ask("again")["outcome"] == "completed"


@pytest.mark.fault(42)
def test_a_tool_may_not_speak_in_the_moment_of_a_restart_either(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    script = tmp_path / "knock.py"
    script.write_text(
        "import os, socket\nheard = set()\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "    with socket.socket(socket.AF_UNIX) as s:\n        s.settimeout(20)\n        try:\n"
        f"            s.connect({daemon.socket!r})\n"
        '            s.sendall(b\'{"id":1,"method":"ping"}\\n\')\n'
        "        except OSError:\n            pass\n"
        "        try:\n            heard.add('no' if b'permission_denied' in (a := s.recv(65536)) else a.decode())\n"
        "        except OSError:\n            pass\nprint(sorted(heard - {''}))\n"
    )
    session = daemon.new()
    session.prompt(f"@bash {sys.executable} -I -S {script} 2>&1")
    session.await_event("tool_use")
    for _ in range(3):
        daemon.restart()
    until(lambda: "client refused" in daemon.log.read_text().splitlines()[-1])
    (tmp_path / "go").touch()
    session.end_of("t1")
    assert session.events("tool_result")[0]["content"] == "['no']"

"""A codex that falls silent: the last error explains it, and a thread at rest ends its turn. And one that goes on by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness

HEAD = """import json, sys, time
if "--version" in sys.argv:
    sys.exit(print("codex-cli 0.171.0"))
def tell(**frame): print(json.dumps(frame), flush=True)
"""
FAILS = """
sys.stdin.read()
tell(type="thread.started", thread_id="t")
tell(type="error", message="git failed: not a valid object name")
time.sleep(60)
"""
THREAD = """
thread = "01a223a0-52b2-7331-9b54-035383b83c91"
def note(method, **params): tell(method=method, params={"threadId": thread, **params})
"""
UNTIL_TURN = """
for line in sys.stdin:
    frame = json.loads(line)
    if frame.get("method") == "initialize":
        tell(id=frame["id"], result={})
    elif frame.get("method") == "thread/start":
        tell(id=frame["id"], result={"thread": {"id": thread}, "sandbox": {"type": "readOnly"}})
    elif frame.get("method") == "turn/start":
"""
RESTS = (
    THREAD
    + """
turn = 0
def end(): note("turn/completed", turn={"id": f"turn{turn}", "status": "completed"})
"""
    + UNTIL_TURN
    + """\
        if turn:
            end()  # late, and for another turn
        turn += 1
        tell(id=frame["id"], result={"turn": {"id": f"turn{turn}"}})
        item = {"type": "agentMessage", "id": f"m{turn}", "text": f"Answer {turn}."}
        note("item/completed", turnId=f"turn{turn}", item=item)
        note("thread/status/changed", status={"type": "idle"})
"""
)


GOES_ON = (
    THREAD
    + """
def work(turn, words, tokens):
    note("turn/started", turn={"id": turn})
    note("item/completed", turnId=turn, item={"type": "agentMessage", "id": turn, "text": words})
    count = {"totalTokens": tokens, "inputTokens": tokens - 10, "outputTokens": 10}
    note("thread/tokenUsage/updated", turnId=turn, tokenUsage={"total": count, "last": count})
    note("turn/completed", turn={"id": turn, "status": "completed"})
"""
    + UNTIL_TURN
    + """\
        tell(id=frame["id"], result={"turn": {"id": "asked"}})
        work("asked", "Asked.", 100)
        time.sleep(0.5)
        work("own", "I go on.", 250)
"""
)


@pytest.mark.fault(102)
def codex(serve: Callable[..., Harness], path: Path, kind: str, body: str, **timeouts: float) -> Harness:
    path.write_text(HEAD + body)
    limits = "\n".join(f"{name} = {value}" for name, value in timeouts.items())
    command = json.dumps([sys.executable, str(path)])
    return serve(raw=f'[backends.c]\nkind = "{kind}"\ncommand = {command}\n[backends.c.timeouts]\n{limits}\n')


def test_the_last_error_explains_a_silence(serve: Callable[..., Harness], tmp_path: Path) -> None:
    here = codex(serve, tmp_path / "codex.py", "codex-exec", FAILS, model_idle=1, int_grace=1)
    end = here.new(backend="c").ask("Hi.")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")
    assert "not a valid object name" in end["error"]["message"]


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_each_turn_of_a_codex_that_reports_ends_late_has_its_own_answer(
    serve: Callable[..., Harness], tmp_path: Path, mode: str
) -> None:
    here = codex(serve, tmp_path / "codex.py", "codex", RESTS, tail=0.5, model_idle=60)
    session = here.new(backend="c", mode=mode)
    assert (first := session.ask("One."))["outcome"] == "completed" and first["text"] == "Answer 1."
    if mode == "live":
        assert session.ask("Two.")["text"] == "Answer 2."


def test_a_turn_that_a_live_codex_begins_by_itself_is_a_turn_of_no_prompt(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    here = codex(serve, tmp_path / "codex.py", "codex", GOES_ON, model_idle=60)
    session = here.new(backend="c", mode="live")
    assert session.ask("One.")["text"] == "Asked."
    own = session.await_event("turn_completed", 2)
    assert (own["outcome"], own["text"], own.get("prompt_ids")) == ("completed", "I go on.", [])
    assert [event["origin"] for event in session.events("turn_started")] == ["prompt", "backend"]
    assert own["usage"]["input_tokens"] + own["usage"]["output_tokens"] == 150

"""An error that a CLI reports behind its answer, without another request to the model, is no error of the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness

CLI = """import json, sys
if "--version" in sys.argv:
    sys.exit(print("2.1.332 (Claude Code)"))
session = sys.argv[sys.argv.index("--session-id") + 1]
def tell(**frame): print(json.dumps({"session_id": session, **frame}), flush=True)
def say(text): tell(type="assistant", message={"id": text, "model": "opus", "content": [{"type": "text", "text": text}]})
def result(**more): tell(type="result", total_cost_usd=0.01, **{"subtype": "success", "is_error": False, "num_turns": 1, **more})
tell(type="system", subtype="init", tools=[], model="opus")
say("Well.")
result(result="Well.")
if REQUEST:
    say("Failed again.")
result(subtype="error_during_execution", is_error=True, num_turns=0, errors=["only prompt commands"])
sys.exit(1)
"""


@pytest.mark.fault(103)
@pytest.mark.parametrize(("request_between", "told"), [(False, ("completed", "Well.")), (True, ("failed", ""))])
def test_an_error_behind_the_answer_fails_the_turn_only_after_another_request(
    serve: Callable[..., Harness], tmp_path: Path, request_between: bool, told: tuple[str, str]
) -> None:
    (tmp_path / "cli.py").write_text(CLI.replace("REQUEST", str(request_between)))
    command = json.dumps([sys.executable, str(tmp_path / "cli.py")])
    here = serve(raw=f'[backends.c]\nkind = "claude"\ncommand = {command}\n')
    end = here.new(backend="c").ask("Hi.")
    assert (end["outcome"], end["text"]) == told

"""No error of a turn holds a secret of its backend, or a half of one, wherever the CLI has said it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness

SECRET = "sk-own-" + "0123456789" * 4
HEAD = """import json, os, sys, time
if "--version" in sys.argv:
    sys.exit(print("codex-cli 0.171.0"))
secret = os.environ["OWN_KEY"]
"""
SAID = {
    "an error on stdout": 'print(json.dumps({"type": "turn.failed", "error": {"message": f"Wrong key: {secret}"}}))',
    "the end of stderr": 'sys.exit(f"Wrong key: {secret}")',
    "words before a silence": 'print(f"The key {secret}, go on?", flush=True); time.sleep(60)',
    "a long line before a silence": 'print("The key is " + "x" * 170 + secret + "?", flush=True); time.sleep(60)',
    "an error before a silence": 'print(json.dumps({"type": "error", "message": secret}), flush=True); time.sleep(60)',
}


@pytest.mark.fault(105)
@pytest.mark.parametrize("where", SAID)
def test_the_error_of_a_turn_holds_no_secret(serve: Callable[..., Harness], tmp_path: Path, where: str) -> None:
    (tmp_path / "codex.py").write_text(HEAD + SAID[where])
    command = json.dumps([sys.executable, str(tmp_path / "codex.py")])
    limits = "startup = 1\nmodel_idle = 1\nint_grace = 0.5"
    here = serve(
        raw=f'[backends.c]\nkind = "codex-exec"\ncommand = {command}\nenv = {{ OWN_KEY = "{SECRET}" }}\n'
        f"[backends.c.timeouts]\n{limits}\n"
    )
    error = here.new(backend="c").ask("Hi.")["error"]
    assert error["message"] and "345678" not in error["message"], error

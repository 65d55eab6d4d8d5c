"""Sessions that began in a real CLI's own program: listed by their transcripts, and taken up.

With CLISUP_UPDATE_EXPECTED=1 the transcripts become the recordings in tests/backends/native_sessions. Lines of a kind that no
rule reads are left out there.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.codex.fake_api import FAKE_KEY
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.provider import KEY_NAME, codex_launcher, provider
from tests.e2e.codex.scenarios import SCENARIOS
from tests.e2e.lab import QUIET, ClaudeLab, claude_binary, poll, running

pytestmark = pytest.mark.e2e

RECORDED = Path(__file__).parents[1] / "backends" / "native_sessions"
_UNREAD = ("attachment", "api-request", "api-request-shape", "api-request-blob", "cost-state", "world_state")


def keep(path: Path, name: str) -> None:
    """Keep a transcript as a recording, if recordings are to be made anew."""
    if os.environ.get("CLISUP_UPDATE_EXPECTED"):
        lines = path.read_text().rstrip("\n").split("\n")
        (RECORDED / name).mkdir(parents=True, exist_ok=True)
        for old in (RECORDED / name).iterdir():
            old.unlink()
        kept = (line for line in lines if json.loads(line)["type"] not in _UNREAD and '"role":"developer"' not in line)
        (RECORDED / name / path.name).write_text("".join(line + "\n" for line in kept))


def transcripts(here: ClaudeLab) -> list[Path]:
    return sorted(here.home.glob(".claude/projects/*/*.jsonl"), key=lambda path: path.stat().st_mtime)


def by_hand(here: ClaudeLab) -> dict[str, str]:
    here.asked_by_others = True
    return {"PATH": os.environ["PATH"], "HOME": str(here.home), **here.variables, **QUIET, "TERM": "xterm-256color"}


class Terminal:
    """claude as a person runs it: typed lines, Enter until they have worked."""

    def __init__(self, here: ClaudeLab) -> None:
        self._outer, self._inner = pty.openpty()
        self.process = subprocess.Popen([str(claude_binary())], env=by_hand(here), cwd=here.cwd, start_new_session=True,
                                        stdin=self._inner, stdout=self._inner, stderr=self._inner)  # fmt: skip
        threading.Thread(target=self._drain, daemon=True).start()
        poll((here.home / ".claude" / "sessions" / f"{self.process.pid}.json").exists, "claude's start")

    def _drain(self) -> None:
        try:
            while os.read(self._outer, 65536):
                pass
        except OSError:  # closed
            pass

    def type(self, line: str, worked: Callable[[], Any]) -> None:
        os.write(self._outer, line.encode())
        for _ in range(60):
            time.sleep(0.5)  # a key press per half second, as of a person: Enter at once would be part of a paste
            if worked():
                return
            os.write(self._outer, b"\r")
        raise AssertionError(f"{line!r} did not work")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        os.close(self._inner)
        os.close(self._outer)


def skip_the_questions(here: ClaudeLab) -> None:
    path = here.home / ".claude.json"
    known = json.loads(path.read_text())
    trusted = {str(here.cwd): {"hasTrustDialogAccepted": True}}
    approved = {"approved": [here.variables["ANTHROPIC_API_KEY"][-20:]]}
    answers = {"hasCompletedOnboarding": True, "projects": trusted, "customApiKeyResponses": approved}
    path.write_text(json.dumps({**known, **answers}))


def listed(here: Any) -> list[dict[str, Any]]:
    with here.client() as client:
        return list(client.call("backend/sessions", cwd=str(here.cwd))["sessions"])


def test_sessions_of_a_terminals_claude_are_listed_and_taken_up(lab: Callable[..., ClaudeLab]) -> None:
    here = lab("memory")
    own = here.turn("Of clisup.")["session_id"]
    subprocess.run([str(claude_binary()), "-p", "My name is Ada."], env=by_hand(here), cwd=here.cwd, check=True, timeout=60,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    printed = transcripts(here)[-1]
    keep(printed, "claude_print")
    skip_the_questions(here)
    terminal = Terminal(here)
    try:
        known = set(transcripts(here))
        terminal.type("Which files are here?", lambda: set(transcripts(here)) - known)
        (path,) = set(transcripts(here)) - known
        poll(lambda: '"type":"assistant"' in path.read_text(), "the answer")
        terminal.type("/rename My own name", lambda: "custom-title" in path.read_text())
        with here.client() as client, pytest.raises(Exception, match="open") as refused:
            client.call("session/new", backend="claude", cwd=str(here.cwd), resume_native_id=path.stem)
        assert getattr(refused.value, "kind", "") == "session_busy"
    finally:
        terminal.close()
    keep(path, "claude_terminal")
    newest, second, third = listed(here)
    assert (newest["native_session_id"], newest["title"]) == (path.stem, "My own name")
    assert newest["prompt"] == "Which files are here?"
    assert (second["native_session_id"], second["title"], second["session_id"]) == (
        printed.stem,
        "My name is Ada.",
        None,
    )
    assert third["session_id"] == own
    done = here.command("resume", printed.stem[:8])
    assert done.returncode == 0, done.stderr
    turn = here.turn("What did I say?", session=done.stdout.strip())
    assert "Ada" in turn["text"], turn.get("error")
    assert next(item for item in listed(here) if item["native_session_id"] == printed.stem)["session_id"]


def test_sessions_of_codex_are_listed_and_taken_up() -> None:
    scenario = next(iter(SCENARIOS.values()))
    with running(CodexLab(scenario)) as here:
        here.asked_by_others = True
        env = {"PATH": os.environ["PATH"], "HOME": str(here.home), KEY_NAME: FAKE_KEY}
        argv = [str(codex_launcher()), "exec", "--skip-git-repo-check", *provider(here.api.url, retries=1)]
        for directory, prompt in ((here.root, "Elsewhere."), (here.cwd, "Say hello from codex.")):
            subprocess.run([*argv, prompt], env=env, cwd=directory, check=True, timeout=90, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        [found] = listed(here)
        (path,) = here.codex_home.glob(f"sessions/*/*/*/rollout-*{found['native_session_id']}.jsonl")
        keep(path, "codex_exec")
        assert (found["backend"], found["title"]) == ("codex", "Say hello from codex.")
        done = here.command("resume", found["native_session_id"])
        assert done.returncode == 0, done.stderr
        turn = here.turn("Go on.", session=done.stdout.strip())
        assert turn["outcome"] == "completed"
        with here.client() as client:
            detail = client.call("session/get", session_id=turn["session_id"])
        assert detail["native_session_id"] == found["native_session_id"]

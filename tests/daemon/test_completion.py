"""`clisup completion`: the scripts in real shells, over a real daemon, and silence where none runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem
from harness import Harness
from wire import PATIENCE_S

from clisup.cli import options
from clisup.cli.commands.other import SHELLS, VARIABLE

ASK = {
    "bash": """
source /dev/stdin <<< "$(clisup completion bash)"
COMP_WORDS=({words} "{begun}"); COMP_CWORD={at}
_clisup_completion clisup; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
compdef() {{ }}
compadd() {{ print -l -- "${{(@P)@[-1]}}" }}
_describe() {{ local each; for each in "${{(@P)3}}"; do print -r -- "${{each%%:*}}"; done }}
source <(clisup completion zsh)
words=({words} "{begun}"); CURRENT=$(({at} + 1)); _clisup_completion
""",
    "fish": """
clisup completion fish | source
complete -C '{words} {begun}' | string replace -r '\\t.*' ''
""",
}


class Shell:
    """A shell that knows the `clisup` of this checkout alone."""

    def __init__(self, daemon: Harness, tmp_path: Path, **env: str) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "clisup").write_text(f'#!/bin/sh\nexec {sys.executable} -m clisup "$@"\n')
        (tmp_path / "bin" / "clisup").chmod(0o755)
        path = f"{tmp_path}/bin:{daemon.env['PATH']}"
        self.env = {**daemon.env, "HOME": str(tmp_path), "PATH": path, "CLISUP_SOCKET": daemon.socket, **env}

    def candidates(self, name: str, words: str, begun: str) -> list[str]:
        """What the shell offers behind `words` for what is `begun`."""
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed here")
        script = ASK[name].format(words=words, begun=begun, at=len(words.split()))
        argv = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}[
            name
        ]
        done = subprocess.run(
            [*argv, script], env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.stderr == ""
        return sorted(line for line in done.stdout.splitlines() if line)


@pytest.fixture
def shell(daemon: Harness, tmp_path: Path) -> Shell:
    return Shell(daemon, tmp_path)


@pytest.mark.parametrize("name", SHELLS)
def test_commands_subcommands_and_options_are_offered(shell: Shell, name: str) -> None:
    assert shell.candidates(name, "clisup", "st") == ["start", "status", "steer", "stop"]
    assert shell.candidates(name, "clisup approvals", "al") == ["allow"]
    assert shell.candidates(name, "clisup status", "--js") == ["--json"]


@pytest.mark.parametrize("name", SHELLS)
def test_sessions_and_backends_come_from_the_daemon(shell: Shell, daemon: Harness, name: str) -> None:
    session, other = daemon.new(), daemon.new()
    other.call("close")
    begun = session.id[:3]
    assert session.id[:8] in shell.candidates(name, "clisup attach", begun)
    assert other.id[:8] not in shell.candidates(name, "clisup attach", other.id[:3])
    assert other.id[:8] in shell.candidates(name, "clisup logs", other.id[:3]), "its log is there"
    assert session.id[:8] in shell.candidates(name, "clisup run --session", begun)
    assert shell.candidates(name, "clisup run -b", "de") == ["demo"]
    assert "demo" in shell.candidates(name, "clisup env", "")


@pytest.mark.parametrize("name", SHELLS)
def test_without_a_daemon_there_is_silence(daemon: Harness, tmp_path: Path, name: str) -> None:
    shell = Shell(daemon, tmp_path, CLISUP_SOCKET=str(tmp_path / "none"))
    assert shell.candidates(name, "clisup attach", "3") == []
    assert shell.candidates(name, "clisup nonsense", "x") == []
    assert shell.candidates(name, "clisup", "topp") == []


def test_a_daemon_that_says_nothing_is_not_waited_for(daemon: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound itself, without a clock: the look goes on in a thread that nobody waits for."""
    let_go = threading.Event()
    monkeypatch.setattr(options, "LIMIT_S", 0.01)
    assert options.candidates(lambda: [CompletionItem("late")] if let_go.wait(PATIENCE_S) else [], "") == []
    let_go.set()


def test_anything_else_in_the_variable_is_silence(daemon: Harness) -> None:
    for value in ("nonsense", "bash_source", "tcsh_complete", "bash_complete"):
        env = {**daemon.env, VARIABLE: value}
        argv = [sys.executable, "-m", "clisup", "status"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")

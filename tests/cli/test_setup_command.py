"""`clisup setup`: from an installed CLI to a first turn, safe to repeat, and nothing of the user's is overwritten."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_start_command import BOUND_S, Home

from tests.fakecli import COMMAND

DEFAULT = '\n[defaults]\nbackend = "claude"\n'
KEY = "sk-ant-value-of-the-key"
MINE = f'# mine\n[backends.claude]  # the one\nkind = "demo"\ncommand = {json.dumps(COMMAND)}\n'


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home with a `claude` of the kind demo on the PATH."""
    home = Home(tmp_path)
    home.config.write_text(MINE)
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    home.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    yield home
    if home.socket.exists():
        home.begin("stop", "--mode", "kill").communicate(timeout=BOUND_S)


def results(home: Home, *words: str, code: int = 0, **env: str) -> dict[str, Any]:
    return dict(json.loads(home.run("setup", "--yes", "--json", *words, code=code, **env).stdout))


def test_a_second_setup_changes_nothing(home: Home) -> None:
    first = results(home)
    assert first["clis"]["claude"] == f"{home.path}/bin/claude"
    assert first["daemon"]["started"] is True
    assert first["backends"] == {"claude": True}
    assert (first["test"]["backend"], first["test"]["outcome"]) == ("claude", "completed")
    assert "Reply with the single word" in first["test"]["text"]
    assert home.config.read_text() == MINE + DEFAULT
    again = results(home)
    assert again["daemon"]["started"] is False and again["daemon"]["pid"] == first["daemon"]["pid"]
    assert home.config.read_text() == MINE + DEFAULT and "settings" not in again
    assert home.run("sessions", "--json").stdout == ""


def test_people_get_each_step_and_what_comes_next(home: Home) -> None:
    out = home.run("setup", "--yes").stdout
    steps = (
        f"claude  {home.path}/bin/claude",
        "Daemon:\n  started: pid ",
        "claude says: You said: ",
        "Next:",
        "clisup run -b claude",
    )
    for words in steps:
        assert words in out


def test_without_a_terminal_and_without_yes_it_is_a_usage_error(home: Home) -> None:
    done = home.run("setup", code=2)
    assert "cannot ask" in done.stderr and "clisup setup --yes" in done.stderr
    assert not home.state_dir.exists()


def test_a_key_is_passed_on_only_if_it_is_asked_for(home: Home) -> None:
    env = {"ANTHROPIC_API_KEY": KEY}
    done = home.run("setup", "--yes", "--no-test", **env)
    assert "ANTHROPIC_API_KEY is not passed on to claude" in done.stdout
    assert home.config.read_text() == MINE + DEFAULT
    found = results(home, "--no-test", "--pass-env", "ANTHROPIC_API_KEY", **env)
    assert found["settings"] == [
        {"file": str(home.config), "backend": "claude", "key": "pass_env", "value": ["ANTHROPIC_API_KEY"]}
    ]
    head = "[backends.claude]  # the one\n"
    assert home.config.read_text() == MINE.replace(head, f'{head}pass_env = ["ANTHROPIC_API_KEY"]\n') + DEFAULT
    kept = json.loads(home.run("env", "claude", "--json").stdout)["kept"]
    assert "ANTHROPIC_API_KEY" in {item["name"] for item in kept}
    assert "settings" not in results(home, "--no-test", "--pass-env", "ANTHROPIC_API_KEY", **env)
    assert KEY not in home.log.read_text() + done.stdout + done.stderr


def test_a_key_that_only_the_shell_has_goes_into_a_file_of_its_own(home: Home) -> None:
    home.run("start")
    results(home, "--no-test", "--pass-env", "ANTHROPIC_API_KEY", ANTHROPIC_API_KEY=KEY)
    file = home.config.parent / "keys" / "ANTHROPIC_API_KEY"
    assert file.read_text() == f"{KEY}\n" and file.stat().st_mode & 0o777 == 0o600
    kept = json.loads(home.run("env", "claude", "--json").stdout)
    assert "ANTHROPIC_API_KEY" in {item["name"] for item in kept["set"]}
    file.write_text("another\n")
    home.config.write_text(MINE)
    home.run("daemon", "reload")
    done = home.run("setup", "--yes", "--no-test", "--pass-env", "ANTHROPIC_API_KEY", ANTHROPIC_API_KEY=KEY)
    assert f"{file} has another value" in done.stdout
    assert (file.read_text(), home.config.read_text()) == ("another\n", MINE + DEFAULT)


def test_a_setting_that_the_daemon_refuses_is_taken_back(home: Home) -> None:
    env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    done = home.run("setup", "--yes", "--no-test", "--pass-env", "ANTHROPIC_API_KEY", **env)
    assert "ANTHROPIC_BASE_URL" in done.stdout
    assert home.config.read_text() == MINE + DEFAULT


def test_the_default_backend_is_the_one_that_was_named_and_a_default_that_is_set_stays(home: Home) -> None:
    other = f'[backends.other]\nkind = "demo"\ncommand = {json.dumps(COMMAND)}\n'
    home.config.write_text(MINE + other)
    assert "settings" not in results(home, "--no-test"), "two work, and nobody chose one"
    assert results(home, "--no-test", "-b", "other")["settings"] == [
        {"file": str(home.config), "backend": None, "key": "backend", "value": "other"}
    ]
    assert home.config.read_text() == MINE + other + DEFAULT.replace("claude", "other")
    assert "settings" not in results(home, "--no-test", "-b", "claude")
    assert home.run("run", "--no-start", "--rm", "hello").stdout == "You said: hello\n"


def test_a_test_turn_that_fails_is_exit_code_1_with_the_reason(home: Home) -> None:
    found = results(home, "-b", "nothing", code=1)
    assert found["test"]["outcome"] == "failed" and "nothing" in found["test"]["error"]


def test_the_questions_are_answered_at_a_terminal(home: Home) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clisup", "setup"], env={**home.env, "ANTHROPIC_API_KEY": KEY},
        stdin=child, stdout=subprocess.PIPE, stderr=child, text=True, start_new_session=True,
    )  # fmt: skip
    os.close(child)
    os.write(parent, b"y\nn\n")  # pass the key on, no test turn
    out, _ = process.communicate(timeout=BOUND_S)
    os.close(parent)
    assert process.returncode == 0
    assert 'pass_env = ["ANTHROPIC_API_KEY"]' in home.config.read_text()
    assert "Next:" in out and "says:" not in out


def test_where_systemd_answers_the_daemon_becomes_a_service_with_the_path_of_the_shell(home: Home) -> None:
    fake = home.path / "bin" / "systemctl"
    asked = home.path / "asked"
    serve = f"{sys.executable} -m clisup serve --socket {home.socket} --state-dir {home.state_dir}"
    fake.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n[ "$2" != start ] || exec {serve} >/dev/null 2>&1 &\n')
    fake.chmod(0o755)
    clisup = home.path / "bin" / "clisup"
    clisup.write_text(f'#!/bin/sh\nexec {sys.executable} -m clisup "$@"\n')
    clisup.chmod(0o755)
    process = subprocess.run(
        [str(clisup), "setup", "--yes", "--json"],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    found = json.loads(process.stdout)
    assert found["service"]["search_path"].startswith(f"{home.path}/bin:")
    unit = (home.path / ".config" / "systemd" / "user" / "clisup.service").read_text()
    assert f'\nEnvironment="PATH={found["service"]["search_path"]}"\nType=notify\n' in unit
    assert "--user start clisup.service" in asked.read_text()
    assert found["test"]["outcome"] == "completed"

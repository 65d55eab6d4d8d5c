"""What holds for every command: help, errors, exit codes, and what the light ones load."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from fake_daemon import FakeDaemon

import clisup
from clisup.cli import main as main_module
from clisup.cli.options import SHORT_HELP, CommandGroup
from clisup.cli.root import GROUPS, SYNONYMS, Commands, root

COMMANDS = [name for names in GROUPS.values() for name in names]
HEAVY = ("click", "rich", "trio", "pydantic", "argparse", "subprocess")
Run = Callable[..., Any]


def found(name: str) -> click.Command:
    assert isinstance(root, Commands)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_names_every_option(clisup: Run, name: str) -> None:
    ran = clisup(name, "--help")
    assert ran.code == 0
    assert "Example:" in ran.out
    assert f"clisup {name}" in ran.out.split("Example:")[1]
    for parameter in found(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.hidden or all(flag in ran.out for flag in parameter.opts), parameter.opts
            assert parameter.help, parameter.opts


@pytest.mark.parametrize("args", [("--help",), ("-h",), ()])
def test_the_help_of_all_groups_the_commands(clisup: Run, args: tuple[str, ...]) -> None:
    ran = clisup(*args)
    assert ran.code == 0
    titles = [f"{title}:" for title in GROUPS]
    assert [line for line in ran.out.splitlines() if line in titles] == titles
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_is_a_whole_sentence(name: str) -> None:
    command = found(name)
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    assert not any(one.get_short_help_str(SHORT_HELP).endswith("...") for one in (command, *inner))
    assert not inner or isinstance(command, CommandGroup)


def test_an_unknown_command_names_the_nearest(clisup: Run) -> None:
    ran = clisup("sesions")
    assert ran == (
        2,
        "",
        "clisup: cannot run 'sesions', because there is no such command\n  hint: did you mean: clisup sessions\n",
    )


@pytest.mark.parametrize(("word", "meant"), [("up", "start"), ("ls", "sessions"), ("restart", "daemon restart")])
def test_the_words_of_other_programs_are_known(clisup: Run, word: str, meant: str) -> None:
    assert clisup(word).err.endswith(f"hint: did you mean: clisup {meant}\n")


def test_the_words_of_other_programs_name_commands_that_there_are(clisup: Run) -> None:
    for meant in set(SYNONYMS.values()):
        assert clisup(*meant.split(), "--help").code == 0


def test_help_is_a_command_too(clisup: Run) -> None:
    assert clisup("help").out == clisup("--help").out
    assert clisup("help", "run").out == clisup("run", "--help").out


def test_a_word_that_is_near_to_nothing_gets_the_list(clisup: Run) -> None:
    assert "see clisup --help" in clisup("qqqq").err


@pytest.mark.parametrize("args", [
    ("run", "--nope"), ("logs",), ("status", "a", "b"), ("stop", "--mode", "softly"), ("run", "--model"), ("approvals", "--watch=1"),
])  # fmt: skip
def test_a_wrong_command_line_is_told_in_the_same_form(clisup: Run, args: tuple[str, ...]) -> None:
    ran = clisup(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("clisup: cannot read the command line, because ")
    assert f"hint: see clisup {args[0]} --help" in ran.err


def test_a_wrong_command_line_is_one_line_and_a_hint(clisup: Run) -> None:
    assert clisup("completion").err.count("\n") == 2


def test_a_command_of_a_command_is_named_whole(clisup: Run) -> None:
    assert "hint: see clisup config show --help" in clisup("config", "show", "--config").err


@pytest.mark.parametrize("args", [
    ("logs", "-f", "3f2a"), ("logs", "--all", "-f"), ("status", "--why", "3f2a"),
    ("interrupt", "3f2a"), ("fork", "3f2a"), ("close", "3f2a"), ("env", "demo"),
    ("steer", "3f2a", "hello"), ("set", "3f2a", "--model", "m"), ("context", "3f2a"),
    ("backends",), ("stop",), ("run", "-b", "demo", "hello"),
])  # fmt: skip
def test_without_a_daemon_every_command_says_how_to_start_it(
    clisup: Run, socket_path: Path, args: tuple[str, ...]
) -> None:
    hints = "  hint: start it: clisup start; see clisup doctor (daemon, socket, systemd)\n"
    expected = f"clisup: cannot reach the daemon at {socket_path}, because nothing listens there\n{hints}"
    assert clisup(*args) == (3, "", expected)


@pytest.mark.parametrize("args", [("version",), ("--version",)])
def test_the_version_needs_no_daemon(clisup: Run, args: tuple[str, ...]) -> None:
    assert clisup(*args).out == f"clisup {sys.modules['clisup'].__version__}\n"


def test_a_fault_of_our_own_is_not_dressed_up(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(main_module, "_run", broken)
    with pytest.raises(ZeroDivisionError):
        clisup("status")


def test_ctrl_c_anywhere_is_130(clisup: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "_run", interrupted)
    assert clisup("status").code == 130


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, with nothing of the test's variables but the path."""
    here = str(Path(clisup.__file__).parents[1])
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": here, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **env}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=variables, check=False)


@pytest.mark.parametrize("command", ["status", "status -q", "status --json"])
def test_a_light_command_loads_no_heavy_module(daemon: FakeDaemon, command: str) -> None:
    from test_status import STATUS

    daemon.handlers["daemon/status"] = lambda peer, params: STATUS
    code = (
        "import sys; before = set(sys.modules)\n"
        f"from clisup.cli.main import main; assert main({command.split()!r}) == 0\n"
        f"print(sorted(m for m in {HEAVY} if m in set(sys.modules) - before))"
    )
    done = python("-c", code, CLISUP_SOCKET=daemon.path)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_runs_as_the_command_does(daemon: FakeDaemon) -> None:
    daemon.stop()
    done = python("-m", "clisup", "status", CLISUP_SOCKET=daemon.path)
    assert done.returncode == 3
    assert "a daemon that is gone left the socket behind" in done.stdout
    assert done.stderr == ""


def test_a_reader_that_leaves_early_is_no_error(daemon: FakeDaemon) -> None:
    for n in range(3000):
        daemon.emit("notice", code=str(n), message="x" * 100)
    here = str(Path(clisup.__file__).parents[1])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m clisup logs 3f2a | head -1"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": here},
    )  # fmt: skip
    assert "0: xxx" in done.stdout
    assert done.stderr == ""

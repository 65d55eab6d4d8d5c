"""Finding a CLI and asking its version: typed refusals, one probe for each binary, and no probe without end."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import trio

from clisup.errors import WorldError
from clisup.host.process import executables
from clisup.host.process.executables import Executable, VersionProbe, find_executable, find_worker
from clisup.host.process.helpers import HELPER_OUTPUT_LIMIT, HelperOutput, ask

ENV = {"PATH": os.environ["PATH"]}


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def found(name: Path | str, search: Path | str = "/nonexistent") -> Executable:
    return find_executable(str(name), search_path=str(search), backend="mine")


def parse(text: str) -> str | None:
    match = re.match(r"v([\d.]+)", text)
    return match[1] if match else None


async def version(probe: VersionProbe, path: Path) -> str | None:
    executable = found(path)
    return await probe.version(executable, (executable.path, "--version"), ENV, parse)


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    with trio.fail_after(30):
        while living(pid):
            await trio.sleep(0.01)


def living(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


# -- finding ----------------------------------------------------------------------------------------------------------


def test_a_command_is_found_on_the_search_path_or_by_its_own(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", "echo v1")
    assert found("cli", f"/nonexistent:{tmp_path}").path == str(path)
    assert found(path).path == str(path)


@pytest.mark.fault(8)
@pytest.mark.parametrize("how", ["missing name", "missing path", "not executable", "directory"])
def test_what_cannot_be_run_is_named_with_the_reason(tmp_path: Path, how: str) -> None:
    script(tmp_path / "plain", "echo", mode=0o644)
    (tmp_path / "directory").mkdir()
    name, reason = {
        "missing name": ("absent", "there is no such command on the daemon's PATH"),
        "missing path": (f"{tmp_path}/absent", "there is no such file"),
        "not executable": (f"{tmp_path}/plain", "it is not executable"),
        "directory": (f"{tmp_path}/directory", "it is not executable"),
    }[how]
    with pytest.raises(WorldError) as caught:
        found(name, tmp_path)
    assert caught.value.kind == "backend_unavailable"
    assert caught.value.data == {"backend": "mine", "command": name}
    assert name in caught.value.message
    assert reason in caught.value.message
    assert "backends.mine.command" in caught.value.hint


def test_a_replaced_binary_has_another_identity_and_a_link_that_of_its_target(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", "echo v1")
    (tmp_path / "link").symlink_to(path)
    first = found(path)
    assert found(tmp_path / "link").identity == first.identity == found(path).identity
    script(tmp_path / "new", "echo v2").rename(path)
    assert found(path).identity != first.identity != found(tmp_path / "link").identity


# -- asking the version -----------------------------------------------------------------------------------------------


def test_a_program_that_has_moved_behind_its_link_is_found_where_it_is_now(tmp_path: Path) -> None:
    program, link = script(tmp_path / "one", "exit 0"), tmp_path / "link"
    link.symlink_to(program)
    assert found(link).real == found(link).real == str(program)
    program.rename(tmp_path / "two")
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert found(link).real == str(tmp_path / "two")


async def test_a_binary_is_asked_once_until_it_changes(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    path = script(tmp_path / "cli", f"echo x >> {asked}; echo v1.2")
    probe = VersionProbe()
    assert [await version(probe, path) for _ in range(3)] == ["1.2"] * 3
    assert asked.read_text().count("x") == 1
    script(tmp_path / "new", f"echo x >> {asked}; echo v1.3").rename(path)
    assert [await version(probe, path) for _ in range(2)] == ["1.3"] * 2
    assert asked.read_text().count("x") == 2


async def test_a_probe_that_failed_is_tried_again(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", f"test -e {tmp_path}/ready && echo v1 || exit 1")
    probe = VersionProbe()
    assert await version(probe, path) is None
    (tmp_path / "ready").touch()
    assert await version(probe, path) == "1"


async def test_the_words_of_a_failed_probe_have_no_colours(tmp_path: Path) -> None:
    executable = found(script(tmp_path / "cli", "printf '\\033[31mfix the settings\\033[0m\\n' >&2; exit 52"))
    probe = VersionProbe()
    assert await version(probe, tmp_path / "cli") is None
    why = probe.why(executable, (executable.path, "--version"), str)
    assert why == "it exited with code 52 and said: fix the settings"


@pytest.mark.parametrize("behind", [460, 490, 3970])
async def test_no_half_of_a_secret_is_quoted_from_a_failed_probe(tmp_path: Path, behind: int) -> None:
    secret = "sk-" + "0123456789" * 6
    executable = found(script(tmp_path / "cli", f"echo 'the key is {secret}{'x' * behind}' >&2; exit 3"))
    probe = VersionProbe()
    assert await version(probe, tmp_path / "cli") is None
    why = probe.why(executable, (executable.path, "--version"), lambda text: text.replace(secret, "[hidden]"))
    assert "code 3" in why and "456789" not in why and "sk-" not in why


async def test_a_file_of_another_architecture_tells_no_version(tmp_path: Path) -> None:
    path = tmp_path / "cli"
    path.write_bytes(b"\x7fELF" + b"\x00" * 60)
    path.chmod(0o755)
    assert await version(VersionProbe(), path) is None


async def test_only_the_given_environment_and_an_empty_stdin_reach_the_command(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", f"env > {tmp_path}/env; cat; echo v1")
    os.environ["CANARY"] = "canary-7f3a"
    try:
        assert await version(VersionProbe(), path) == "1"
    finally:
        del os.environ["CANARY"]
    assert "canary" not in (tmp_path / "env").read_text()


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "PROBE_LIMIT_S", 1.0)
    path = script(tmp_path / "cli", f"sleep 1000 & echo $! > {tmp_path}/child; trap '' TERM; wait")
    with trio.fail_after(30):
        assert await version(VersionProbe(), path) is None
    await gone(int((tmp_path / "child").read_text()))


async def test_what_a_command_said_before_it_hung_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "PROBE_LIMIT_S", 1.0)
    with trio.fail_after(30):
        assert await version(VersionProbe(), script(tmp_path / "cli", "echo v7; sleep 1000")) == "7"


async def test_a_child_that_holds_the_pipe_delays_the_answer_no_longer_than_its_grace(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", f"sleep 1000 & echo $! > {tmp_path}/child; echo v1")
    with trio.fail_after(executables.PROBE_LIMIT_S):
        assert await version(VersionProbe(), path) == "1"
    await gone(int((tmp_path / "child").read_text()))


async def test_a_command_that_floods_is_ended_and_little_of_it_is_held(tmp_path: Path) -> None:
    said: list[str] = []
    path = script(tmp_path / "cli", f"exec {sys.executable} -c \"while True: print('v1' * 5000)\"")
    executable = found(path)
    with trio.fail_after(30):
        await VersionProbe().version(executable, (executable.path,), ENV, lambda text: said.append(text) or "1")
    assert [len(text) for text in said] == [HELPER_OUTPUT_LIMIT]


async def test_who_asks_while_a_probe_runs_waits_for_its_answer(tmp_path: Path) -> None:
    path = script(
        tmp_path / "cli", f"echo x >> {tmp_path}/asked; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo v3"
    )
    probe, answers = VersionProbe(), []

    async def one() -> None:
        answers.append(await version(probe, path))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)
            await until_exists(tmp_path / "asked")
            (tmp_path / "go").touch()
    assert answers == ["3"] * 5
    assert (tmp_path / "asked").read_text() == "x\n"


async def until_exists(path: Path) -> None:
    while not there(path):
        await trio.sleep(0.01)


def there(path: Path) -> bool:
    return path.exists()


async def test_who_has_no_patience_gets_nothing_and_the_probe_goes_on(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo v3")
    probe, executable = VersionProbe(), found(path)
    argv = (executable.path, "--version")
    with trio.fail_after(30):
        assert await probe.version(executable, argv, ENV, parse, patience_s=0.05) is None
        (tmp_path / "go").touch()
        while await probe.version(executable, argv, ENV, parse, patience_s=0.05) != "3":
            pass


async def test_a_failed_probe_is_not_waited_for_again_by_who_has_no_patience(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", f"echo x >> {tmp_path}/asked; exit 1")
    probe, executable = VersionProbe(), found(path)
    argv = (executable.path, "--version")
    assert await probe.version(executable, argv, ENV, parse) is None
    assert await probe.version(executable, argv, ENV, parse, patience_s=30) is None
    assert (tmp_path / "asked").read_text() == "x\n" * 2  # the second time for its words on stderr
    assert await probe.version(executable, argv, ENV, parse) is None
    assert (tmp_path / "asked").read_text() == "x\n" * 4


async def test_an_adapter_that_cannot_read_the_answer_is_told_to_who_asked(tmp_path: Path) -> None:
    def broken(text: str) -> str | None:
        raise LookupError(text)

    executable = found(script(tmp_path / "cli", "echo v1"))
    with pytest.raises(LookupError, match="v1"):
        await VersionProbe().version(executable, (executable.path,), ENV, broken)


# -- asking anything --------------------------------------------------------------------------------------------------


async def test_an_answer_holds_both_streams_and_the_exit_code(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", "echo out; echo err >&2; pwd; exit 3")
    assert await ask([str(path)], ENV, purpose="test") == HelperOutput(b"out\nerr\n/\n", 3)


async def test_a_command_that_does_not_leave_or_cannot_be_started_has_no_exit_code(tmp_path: Path) -> None:
    path = script(tmp_path / "cli", "echo hello; sleep 1000")
    with trio.fail_after(30):
        assert await ask([str(path)], ENV, purpose="test", limit_s=1.0) == HelperOutput(b"hello\n", None)
    assert await ask([f"{tmp_path}/absent"], ENV, purpose="test") == HelperOutput(b"", None)


class TestWorkers:
    def test_the_first_prefix_that_is_there_whole_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "v1.2").mkdir()
        worker = script(tmp_path / "v1.2" / "worker", "")
        data = tmp_path / "cli.js"
        data.write_text("")
        missing = (str(tmp_path / "absent"),)
        found = find_worker([missing, (f"{tmp_path}/v*/worker",)], search_path="/nonexistent")
        assert found == (str(worker),)
        interpreted = find_worker([("sh", "--flag", str(data))], search_path=os.environ["PATH"])
        assert interpreted is not None and interpreted[1:] == ("--flag", str(data))
        assert os.path.isabs(interpreted[0])

    def test_nothing_half_is_taken(self, tmp_path: Path) -> None:
        script(tmp_path / "worker", "", mode=0o644)  # not executable
        candidates = [
            (f"{tmp_path}/worker",),
            ("sh", f"{tmp_path}/absent.js"),
            ("no-such-command", f"{tmp_path}/worker"),
            (),
        ]
        assert find_worker(candidates, search_path=os.environ["PATH"]) is None
        assert find_worker([], search_path="") is None

"""Finding a CLI and asking its version: typed refusals, one probe for each binary, and no probe without end."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import trio

from clisup.errors import WorldError
from clisup.host import executables
from clisup.host.executables import Executable, VersionProbe, find_executable

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
    os.kill(int((tmp_path / "child").read_text()), 9)


async def test_a_command_that_floods_is_ended_and_little_of_it_is_held(tmp_path: Path) -> None:
    said: list[str] = []
    path = script(tmp_path / "cli", f"exec {sys.executable} -c \"while True: print('v1' * 5000)\"")
    executable = found(path)
    with trio.fail_after(30):
        await VersionProbe().version(executable, (executable.path,), ENV, lambda text: said.append(text) or "1")
    assert [len(text) for text in said] == [executables.PROBE_OUTPUT_LIMIT]

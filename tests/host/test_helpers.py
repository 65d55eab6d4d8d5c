"""Helper programs: contained like a CLI, with input, output, a time limit, and an end of all that they have started."""

# ruff: noqa: ASYNC220  # nothing else runs in the loop of these tests
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

from clisup.host.process.helpers import HELPER_OUTPUT_LIMIT, HELPERS, HelperOutput, ask, run_helper
from clisup.host.process.keepers import KeeperZygote
from clisup.host.sockets import is_marked

ENV = {"PATH": os.environ.get("PATH", os.defpath)}
DETACHED = "env -i setsid sh -c 'sh -c \"echo \\$\\$ > {0}/new; mv {0}/new {0}/pid; exec sleep 600\" & exit' & "
UNTIL_DETACHED = "while [ ! -s {0}/pid ]; do sleep 0.01; done; "


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end, "waited in vain"
        await trio.sleep(0.01)


async def pid_in(place: Path) -> int:
    await until(lambda: (place / "pid").exists())
    return int((place / "pid").read_text())


@pytest.fixture(params=["zygote", "alone"], autouse=True)
async def guards(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Start the guards by a zygote, as a daemon does, or each alone."""
    if request.param == "alone":
        yield
        return
    zygote = KeeperZygote()
    async with trio.open_nursery() as nursery:
        assert await zygote.up()
        nursery.start_soon(zygote.receive_answers)
        HELPERS.zygote = zygote
        yield
        HELPERS.zygote = None
        nursery.cancel_scope.cancel()
    await zygote.end()


async def helper(script: str, stdin: bytes = b"", limit_s: float = 30) -> HelperOutput:
    return await run_helper(["sh", "-c", script], ENV, purpose="test", stdin=stdin, limit_s=limit_s)


async def test_a_helper_gets_its_input_and_exactly_its_environment_and_gives_output_and_exit_code() -> None:
    script = "cat; env; pwd; ls /proc/self/fd; echo no >&2; exit 3"
    done = await run_helper(["sh", "-c", script], ENV | {"A": "b"}, purpose="t", stdin=b"input\n", limit_s=30)
    lines = done.output.splitlines()
    assert done.exit_code == 3 and lines[0] == "input" and "/" in lines and lines[-1] == "no"
    assert {line.partition("=")[0] for line in lines if "=" in line} <= {"A", "PATH", "PWD", "_", "SHLVL"}
    assert {int(line) for line in lines if line.isdigit()} == {0, 1, 2, 3}  # 3 is of `ls`


async def test_a_helper_that_reads_nothing_or_prints_much_is_no_trouble() -> None:
    done = await run_helper(["true"], ENV, purpose="test", stdin=b"x" * 10_000_000, limit_s=30)
    assert done == (b"", 0)
    done = await helper("head -c 3000000 /dev/zero | tr '\\0' y")
    assert (len(done.data), done.exit_code) == (HELPER_OUTPUT_LIMIT, 0)


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await run_helper(["/no/such/program"], ENV, purpose="test", limit_s=30)
    with pytest.raises(FileNotFoundError):
        await run_helper(["no-such-program"], ENV, purpose="test", limit_s=30)
    assert await ask(["no-such-program"], ENV, purpose="test") == (b"", None)


async def test_a_helper_and_its_children_have_the_mark_of_a_cli(tmp_path: Path) -> None:
    marks = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(helper, f"(echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 600)")
        marks.append(is_marked(await pid_in(tmp_path)))
        nursery.cancel_scope.cancel()
    assert marks == [True]


@pytest.mark.parametrize("end", ["exit 0", "sleep 600"])
async def test_all_that_a_helper_has_started_ends_with_it(tmp_path: Path, end: str) -> None:
    script = (f"trap '' TERM HUP; {DETACHED}{UNTIL_DETACHED}").format(tmp_path) + end
    with trio.fail_after(60):
        done = await helper(script, limit_s=5 if end != "exit 0" else 30)
    assert done.exit_code == (0 if end == "exit 0" else None)
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_helper_whose_caller_gives_up_ends_with_its_tree(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(helper, (f"{DETACHED}sleep 600").format(tmp_path))
        pid = await pid_in(tmp_path)
        nursery.cancel_scope.cancel()
    assert not is_alive(pid)


async def test_a_killed_guard_takes_its_program_along_and_orphans_are_looked_for(tmp_path: Path) -> None:
    looks = []

    async def look() -> None:
        looks.append(1)

    HELPERS.end_orphans = look
    try:
        with trio.fail_after(60):
            done = await helper(f"echo $$ > {tmp_path}/pid; kill -9 $PPID; exec sleep 600")
    finally:
        HELPERS.end_orphans = None
    assert (done.exit_code, looks) == (None, [1])
    await until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


async def test_a_stopped_guard_delays_its_caller_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clisup.host.process.helpers.GUARD_END_LIMIT_S", 1.0)
    with trio.fail_after(60):
        done = await helper(f"echo $$ > {tmp_path}/pid; kill -STOP $PPID; exec sleep 600", limit_s=1)
    assert done.exit_code is None
    await until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


async def test_a_lost_zygote_is_replaced_by_guards_of_their_own() -> None:
    if HELPERS.zygote is not None:
        os.kill(HELPERS.zygote.pid, signal.SIGKILL)
    assert await helper("echo here") == (b"here\n", 0)


PARENT = """
import sys, trio
from clisup.host.process.helpers import HELPERS, run_helper
from clisup.host.process.keepers import KeeperZygote
async def main(how, script):
    async with trio.open_nursery() as nursery:
        if how == "zygote":
            HELPERS.zygote = KeeperZygote()
            await HELPERS.zygote.up()
            nursery.start_soon(HELPERS.zygote.receive_answers)
        await run_helper(["sh", "-c", script], {"PATH": "/usr/bin:/bin"}, purpose="test", limit_s=600)
trio.run(main, *sys.argv[1:])
"""


async def test_the_kill_of_the_parent_ends_the_whole_tree(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    how = "zygote" if HELPERS.zygote is not None else "alone"
    script = (f"{DETACHED}sleep 600").format(tmp_path)
    with subprocess.Popen([sys.executable, "-c", PARENT, how, script]) as parent:
        pid = await pid_in(tmp_path)
        parent.send_signal(signal.SIGKILL)
    await until(lambda: not is_alive(pid))

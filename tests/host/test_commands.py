"""Commands for messages: input, output, a time limit, and an end of everything that they have started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from clisup.host.process.commands import MARK, OUTPUT_LIMIT, run_command

ENV = {"PATH": os.environ.get("PATH", os.defpath)}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_command_gets_its_input_and_gives_its_output_and_exit_code() -> None:
    done = await run_command(["sh", "-c", "cat; env; echo no >&2; exit 3"], ENV | {"A": "b"}, b"input\n", limit_s=30)
    assert done.exit_code == 3 and done.output.startswith("input\n") and "no\n" in done.output
    assert {line.partition("=")[0] for line in done.output.splitlines() if "=" in line} <= {
        "A",
        "PATH",
        "PWD",
        "_",
        "SHLVL",
        MARK,
    }


async def test_a_command_that_reads_nothing_or_prints_much_is_no_trouble() -> None:
    done = await run_command(["true"], ENV, b"x" * 10_000_000, limit_s=30)
    assert done == ("", 0)
    done = await run_command(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' y"], ENV, b"", limit_s=30)
    assert (len(done.output), done.exit_code) == (OUTPUT_LIMIT, 0)


async def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await run_command(["/no/such/program"], ENV, b"", limit_s=30)


@pytest.mark.parametrize("end", ["exit 0", "sleep 600"])
async def test_all_that_a_command_has_started_ends_with_it(tmp_path: Path, end: str) -> None:
    script = f"trap '' TERM HUP; sleep 600 & echo $! > {tmp_path}/a; setsid sh -c 'echo $$ > {tmp_path}/b; exec sleep 600' & {end}"
    script = script.replace(f"& {end}", f"& while [ ! -s {tmp_path}/b ]; do sleep 0.01; done; {end}")
    with trio.fail_after(60):
        done = await run_command(["sh", "-c", script], ENV, b"", limit_s=2 if end != "exit 0" else 30)
    assert done.exit_code == (0 if end == "exit 0" else None)
    pids = [int((tmp_path / name).read_text()) for name in "ab"]
    await gone(lambda: not any(map(is_alive, pids)))


async def gone(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not what():
        assert time.monotonic() < until, "waited in vain"
        await trio.sleep(0.02)


async def test_a_command_whose_caller_gives_up_ends_too(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: run_command(["sh", "-c", f"echo $$ > {tmp_path}/a; sleep 600"], ENV, b"", limit_s=600)
        )
        await gone(lambda: (tmp_path / "a").exists() and bool((tmp_path / "a").read_text()))
        nursery.cancel_scope.cancel()
    assert not is_alive(int((tmp_path / "a").read_text()))

"""What the CLI says is in the spools: every byte, once, in order, within the quotas."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from keeper_probe import eventually

PYTHON = ["/usr/bin/env", "python3", "-I", "-S", "-c"]
NUMBERS = b"".join(b"%d\n" % number for number in range(300_000))


def test_bytes_of_both_streams_land_whole_and_apart(keep):
    probe = keep("seq 0 299999; seq 0 299999 | tac >&2")
    record = probe.exit()
    assert probe.out() == NUMBERS
    assert probe.err() == b"".join(reversed(NUMBERS.splitlines(keepends=True)))
    assert (record["out"], record["err"]) == (len(NUMBERS), len(NUMBERS))


@pytest.mark.fault(26)
def test_a_last_line_without_newline_and_odd_bytes_are_kept_as_they_are(keep):
    probe = keep(r"printf 'a\000\377\342\200\250b'")
    probe.exit()
    assert probe.out() == b"a\0\xff\xe2\x80\xa8b"


@pytest.mark.fault(30)
def test_a_flood_of_stderr_keeps_head_and_tail_and_says_what_it_dropped(keep):
    probe = keep("seq 0 299999 >&2; read line; seq 0 299999 >&2", stdin_eof=False, limits={"stderr_bytes": 20_000})
    probe.start()
    eventually(lambda: len(probe.err()) == 10_000)
    probe.send(op="stdin", id=1, data="go\n")
    record = probe.exit()
    note = b"\n[clisup: %d bytes of stderr dropped]\n" % (2 * len(NUMBERS) - 20_000)
    assert probe.err() == NUMBERS[:10_000] + note + NUMBERS[-10_000:]
    assert record["err_dropped"] == 2 * len(NUMBERS) - 20_000


def test_stderr_within_its_quota_is_whole_and_has_no_note(keep):
    probe = keep("printf 0123456789 >&2", limits={"stderr_bytes": 12})
    assert probe.exit()["err_dropped"] == 0
    assert probe.err() == b"0123456789"


@pytest.mark.fault(59)
def test_a_spool_over_its_quota_ends_the_run_and_stays_within_it(keep):
    probe = keep("exec yes", limits={"spool_bytes": 200_000})
    record = probe.exit()
    assert (record["reason"], record["signal"], record["ladder"][0][0]) == ("output_limit", 15, "TERM")
    assert len(probe.out()) == record["out"] == 200_000
    assert record["out_dropped"] > 0


@pytest.mark.fault(71)
def test_in_file_mode_3_mb_that_were_written_just_before_the_exit_are_whole(keep):
    probe = keep([*PYTHON, "import os; os.write(1, b'x' * 3_000_000); os._exit(3)"], stdout_mode="file")
    record = probe.exit()
    assert (record["exit_code"], record["out"], record["file_shrunk"]) == (3, 3_000_000, False)
    assert probe.out() == b"x" * 3_000_000
    assert not (probe.dir / "out.raw").exists()


def test_in_file_mode_output_is_copied_while_the_cli_runs(keep):
    probe = keep("echo one; read line; echo two", stdout_mode="file", stdin_eof=False)
    probe.start()
    probe.said(b"one\n")
    probe.send(op="stdin", id=1, data="go\n")
    probe.exit()
    assert probe.out() == b"one\ntwo\n"


def test_a_file_that_shrinks_is_reported_and_what_comes_after_is_kept(keep):
    probe = keep("echo first; read line; : > /dev/stdout; read line; echo 2", stdout_mode="file", stdin_eof=False)
    probe.start()
    probe.said(b"first\n")
    probe.send(op="stdin", id=1, data="go\n")
    probe.receive("file_shrunk")
    probe.send(op="stdin", id=2, data="go\n")
    record = probe.exit()
    assert record["file_shrunk"] is True
    assert probe.out() == b"first\n2\n"


@pytest.fixture
def small_disk(tmp_path: Path):
    """A tmpfs of 1 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mount], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass


@pytest.mark.fault(55)
def test_a_full_disk_holds_the_cli_back_and_no_byte_is_lost_or_doubled(keep, small_disk):
    probe = keep("read line; exec seq 0 99999", run=str(small_disk / "run"), stdin_eof=False)
    probe.start()
    fill(small_disk / "ballast")
    probe.send(op="stdin", id=1, data="go\n")
    assert probe.receive("blocked") == {"push": "blocked", "stream": "out", "errno": 28}
    assert probe.connect()["blocked"] is True
    os.unlink(small_disk / "ballast")
    probe.receive("unblocked")
    record = probe.exit()
    assert (record["exit_code"], record["blocked"]) == (0, False)
    assert probe.out() == b"".join(b"%d\n" % number for number in range(100_000))


@pytest.mark.fault(56)
def test_a_disk_that_is_full_at_the_exit_still_takes_the_exit_record(keep, small_disk):
    probe = keep("read line; exit 7", run=str(small_disk / "run"), stdin_eof=False)
    probe.start()
    fill(small_disk / "ballast")
    probe.send(op="stdin", id=1, data="go\n")
    assert probe.exit()["exit_code"] == 7


@pytest.mark.fault(55)
def test_output_of_a_dead_cli_waits_for_space(keep, small_disk):
    probe = keep("read line; seq 0 9999; exit 5", run=str(small_disk / "run"), stdin_eof=False)
    probe.start()
    fill(small_disk / "ballast")
    probe.send(op="stdin", id=1, data="go\n")
    probe.receive("main_exited")
    assert not (probe.dir / "exit.json").exists()
    os.unlink(small_disk / "ballast")
    record = probe.exit()
    assert (record["exit_code"], record["blocked"]) == (5, False)
    assert probe.out() == b"".join(b"%d\n" % number for number in range(10_000))


@pytest.mark.fault(60)
def test_a_run_directory_without_space_is_a_typed_refusal_before_anything_runs(keep, small_disk):
    fill(small_disk / "ballast")
    probe = keep("touch ran", run=str(small_disk / "run"), cwd=str(small_disk))
    assert (probe.ready()["kind"], probe.process.wait(20)) == ("storage_failed", 74)
    assert not (small_disk / "ran").exists()

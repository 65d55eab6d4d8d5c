"""Facts of the machine, as this process finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clisup.host import clock, machine
from clisup.host.machine import directory_facts, kernel_version, missing_features, user_name


def test_a_directory_is_described_as_this_process_may_use_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    facts = directory_facts(str(tmp_path))
    assert (facts.mode, facts.readable, facts.writable, facts.problem) == (0o750, True, True, None)
    assert facts.free_bytes and facts.file_system


def test_what_is_no_directory_has_no_mode(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent", tmp_path / "file", "/nul\0"):
        assert directory_facts(str(path)).mode is None


def test_a_directory_that_others_can_change_is_told_by_the_rule_of_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for path in (tmp_path, tmp_path / "later"):
        problem = directory_facts(str(path)).problem
        assert problem is not None and f"others may write to {tmp_path}" in problem[0]


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert directory_facts("/proc/self").file_system == "proc"


def test_this_machine_has_what_the_tests_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_features() == ()
    assert kernel_version() >= (5, 10)
    assert clock.synchronised() in (True, False, None)
    assert user_name()


def test_a_sandbox_that_forbids_a_call_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(machine, "_pidfd", refuse)
    assert missing_features() == ("pidfd_open (Operation not permitted)",)


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    missing_features()
    assert len(os.listdir("/proc/self/fd")) == before

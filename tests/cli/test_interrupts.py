"""Ctrl-C while a program still imports its modules: exit code 130, and nothing on stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}

sys.meta_path.insert(0, Interrupted())
sys.argv = ["x"]
runpy.run_module({program!r}, run_name="__main__", alter_sys=True)
"""
GROUP = "BaseExceptionGroup('', [KeyboardInterrupt()])"


@pytest.mark.parametrize(
    ("program", "module", "error"),
    [
        ("clisup", "clisup.cli.main", "KeyboardInterrupt"),
        ("clisup", "clisup.cli.main", GROUP),
        ("clisup", "click", "KeyboardInterrupt"),
        ("clisup.worker", "clisup.worker.app", "KeyboardInterrupt"),
        ("clisup.worker", "trio", "KeyboardInterrupt"),
        ("clisup.demo", "clisup.demo.app", "KeyboardInterrupt"),
    ],
)
def test_an_interrupt_during_the_imports_ends_a_program_quietly(program: str, module: str, error: str) -> None:
    code = PROGRAM.format(module=module, program=program, error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_another_fault_keeps_its_traceback() -> None:
    error = "BaseExceptionGroup('', [KeyboardInterrupt(), ValueError('x')])"
    code = PROGRAM.format(module="clisup.cli.main", program="clisup", error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "ValueError: x" in done.stderr

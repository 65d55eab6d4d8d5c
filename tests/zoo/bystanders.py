"""Who must come through all rounds unharmed: neighbours of the trees that are killed, and the proof that they are well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.zoo import bystander

__all__ = ["Bystanders"]

KINDS: dict[str, tuple[str, bool]] = {
    # name -> what it does, and whether in a session of its own
    "in the session and group of the runner": ("watch", False),
    "in a session of its own": ("watch", True),
    "forking all the time": ("churn", True),
}
LEAVES_S = 10.0


class Bystanders:
    """`harmed` ends them and gives what happened to them: nothing, or a list of sentences."""

    def __init__(self, directory: Path) -> None:
        self.hits = directory / "hits"
        self.processes = {name: self._start(what, own) for name, (what, own) in KINDS.items()}

    def _start(self, what: str, own_session: bool) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", bystander.__file__, what, str(self.hits)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=own_session, env={},
        )  # fmt: skip
        assert process.stdout and process.stdout.readline() == b"up\n"
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.harmed()

    def harmed(self) -> list[str]:
        said = self.hits.read_text().splitlines() if self.hits.exists() else []
        for name, process in self.processes.items():
            with process:
                assert process.stdin
                process.stdin.close()
                code = process.wait(LEAVES_S)
            if code != 0:
                said.append(f"the one {name} ended with {code}")
        self.processes.clear()
        return said

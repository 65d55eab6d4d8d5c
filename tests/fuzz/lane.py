"""One process's share of the inputs: make, run, keep what broke, and make it small."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fuzz.corpus import MAKERS
from tests.fuzz.promises import BrokenPromise
from tests.fuzz.targets import TARGETS

__all__ = ["DOORS", "SHARES", "Finding", "Played", "play", "replay", "run_one"]

SHARES = {
    "decoder": 33, "wire": 30, "framer": 22, "client": 4, "journal": 3, "lists": 2, "config": 1, "recording": 3, "transcript": 2,
}  # fmt: skip
"""Of a hundred inputs."""

DOORS = {"pages": 50, "gateway": 50}
"""Of a hundred connections to the HTTP doors. One takes as long as a hundred other inputs, so they are counted apart."""

MINIMISE_S = 10.0
KEPT = 20  # findings that differ; the rest are counted


@dataclass(frozen=True)
class Finding:
    """An input that broke something. `where` is the same for all inputs that break it in the same place."""

    target: str
    salt: int
    data: bytes
    where: str
    promise: bool

    def save(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.target}-{hashlib.sha256(self.where.encode()).hexdigest()[:10]}.json"
        fields = {
            "target": self.target,
            "salt": self.salt,
            "where": self.where,
            "data": base64.b64encode(self.data).decode(),
        }
        path.write_text(json.dumps(fields, indent=1) + "\n")
        return path


@dataclass
class Played:
    """What came of some inputs: `findings` differ in their place, `exceptions` and `promises` count every input."""

    inputs: int = 0
    exceptions: int = 0
    promises: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)

    def take(self, finding: Finding | None) -> None:
        """Count one input; a finding of a new place is made small and kept."""
        self.inputs += 1
        if finding is None:
            return
        self.promises += finding.promise
        self.exceptions += not finding.promise
        if finding.where not in self.findings and len(self.findings) < KEPT:
            self.findings[finding.where] = minimise(finding)

    def __iadd__(self, other: Played) -> Self:
        self.inputs += other.inputs
        self.exceptions += other.exceptions
        self.promises += other.promises
        self.findings = other.findings | self.findings
        return self


def run_one(target: str, data: bytes, salt: int) -> Finding | None:
    """Play one input."""
    try:
        TARGETS[target](data, salt)
    except Exception as error:  # what the lane is for
        return Finding(target, salt, data, _where(error), isinstance(error, BrokenPromise))
    return None


def replay(path: Path) -> Finding | None:
    """Play a saved finding again."""
    fields = json.loads(path.read_text())
    return run_one(fields["target"], base64.b64decode(fields["data"]), fields["salt"])


def _where(error: BaseException) -> str:
    """The kind of trouble and the last line of ours, without what differs from input to input."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames if "clisup" in frame.filename
    ]
    if isinstance(error, BrokenPromise):
        return f"{error} ({ours[-1] if ours else 'in the check'})" if error.__cause__ is None else str(error)
    last = frames[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.name}:{last.lineno} from {ours[-1] if ours else '?'}"


def play(seed: int, inputs: int, shares: Mapping[str, int] = SHARES) -> Played:
    """Play `inputs` inputs that follow from `seed`."""
    rng = random.Random(seed)
    makers = {target: MAKERS[target](rng) for target in shares}
    weighted = [target for target, share in shares.items() for _ in range(share)]
    played = Played()
    for _ in range(inputs):
        target = weighted[int(rng.random() * len(weighted))]
        played.take(run_one(target, makers[target](), int(rng.random() * (1 << 32))))
    return played


def minimise(finding: Finding) -> Finding:
    """The same trouble from fewer bytes: leave out ever smaller pieces, as long as it stays the same."""
    data, end = finding.data, time.monotonic() + MINIMISE_S
    size = max(1, len(data) // 2)
    while True:
        smaller = next((each for each in _without(data, size) if time.monotonic() < end and _same(finding, each)), None)
        if smaller is not None:
            data = smaller
        elif size > 1 and time.monotonic() < end:
            size //= 2
        else:
            return Finding(finding.target, finding.salt, data, finding.where, finding.promise)


def _without(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[:at] + data[at + size :]


def _same(finding: Finding, data: bytes) -> bool:
    again = run_one(finding.target, data, finding.salt)
    return again is not None and again.where == finding.where

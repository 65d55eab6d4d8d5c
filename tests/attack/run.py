"""`make attack`: play the attackers, and print what each reached. Exit 1 if that is more than the page says.

    python -m tests.attack.run [--only PART] [--short] [--seed N] [--json PATH]

`ONLY`, `SHORT` and `SEED` in the environment do the same. The page is docs/explanation/security.md. Each part is a process
of its own. As root, most parts run as a user that nobody else is, so that a tool has no more rights than its daemon.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.attack import cell
from tests.attack.model import Outcome, beyond, rows, table
from tests.fleet_chaos.process import end_all

__all__ = ["PARTS"]

PARTS = {
    "tool-git": True,
    "tool-files": True,
    "tool-spoil": True,
    "tool-socket": True,
    "tool-load": True,
    "page": True,
    "cli": True,
    "provider": True,
    "agent": True,
    "key": True,
    "user": False,
}
"""Parts by name: modules of this folder. The value tells whether the part gives up the rights of root."""
PART_S, SHORT_S = 600.0, 180.0
"""Bound of one part, and of one part of the short form."""
WORKERS = 2
_parts: list[subprocess.Popen[str]] = []


def main() -> int:
    options = _arguments()
    began, promised = time.monotonic(), rows()
    signal.signal(signal.SIGTERM, lambda *_: _end_parts())
    names = [name for name in PARTS if name.startswith(options.only)]
    if not names:
        sys.exit(f"no part is named {options.only!r}: choose from {', '.join(PARTS)}")
    print(f"{len(names)} parts, SEED={options.seed}{', short' if options.short else ''}", flush=True)
    for package in ("clisup", "tests"):  # a part cannot write bytecode, and each of its processes would compile all
        compileall.compile_dir(cell.ROOT / package, quiet=2)
    with ThreadPoolExecutor(WORKERS) as pool:
        outcomes = [one for part in pool.map(lambda name: _play(name, options), names) for one in part]
    print("", *table(outcomes, promised), "", sep="\n")
    problems = beyond(outcomes, promised, all_played=bool(os.environ.get("CLISUP_CI")))
    print(*(f"! {problem}" for problem in problems), sep="\n")
    if options.json:
        figures = {"seed": options.seed, "outcomes": [one._asdict() for one in outcomes], "problems": problems}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    words = Counter(one.word for one in outcomes)
    print(
        f"{time.monotonic() - began:.0f} s; " + ", ".join(f"{word} {number}" for word, number in sorted(words.items()))
    )
    print(f"attacks {len(outcomes)} reached beyond the page {len(problems)}")
    return 1 if problems else 0


def _end_parts() -> None:
    """End the parts with the lane: they are sessions of their own."""
    for process in _parts:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(143)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.attack.run", description="Play the attackers of security.md.")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), help="play the parts whose name begins so")
    parser.add_argument("--name", default="", help="play the attacks whose name contains this")
    parser.add_argument("--short", action="store_true", default=bool(os.environ.get("SHORT")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", random.randrange(1_000_000))))
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    return parser.parse_args()


def _play(name: str, options: argparse.Namespace) -> list[Outcome]:
    """Play one part in its process, and print each outcome as it comes."""
    home = f"/tmp/attack.{os.getpid()}.{name}"
    words = [sys.executable, "-m", "tests.attack.play", name, str(options.seed), options.name,
             *(["--short"] if options.short else [])]  # fmt: skip
    env = {**os.environ, "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = cell.command(words, home, as_root=not PARTS[name])
    bound = SHORT_S if options.short else PART_S
    outcomes: list[Outcome] = []
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        timer = threading.Timer(bound, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        _parts.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            outcomes.append(Outcome(*json.loads(line)))
            _print(outcomes[-1])
        timer.cancel()
        _parts.remove(process)
    if not cell.confined():
        _end_all(home)
    if process.returncode:
        outcomes.append(Outcome(name, "-", "the part", "broken", f"exit {process.returncode}, bound {bound:.0f} s"))
        _print(outcomes[-1])
    return outcomes


def _print(one: Outcome) -> None:
    print(f"{one.part:11} {one.row:4} {one.word:10} {one.name} ({one.seconds:.1f} s) {one.detail}", flush=True)


def _end_all(home: str) -> None:
    """Kill what a part without a cell has left, and remove its directory."""
    while end_all(home):
        time.sleep(0.05)
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

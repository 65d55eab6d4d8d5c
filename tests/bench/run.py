"""`make bench`: what clisup costs, beside references measured in the same run on the same machine.

    python -m tests.bench.run [NAMES...] [--short] [--json FILE] [--record]

Without names all parts. The figures are printed and written to `.bench/results.json`. `--record` also writes them to
tests/bench/recorded.json and docs/proofs/performance.md. `--short` (a minute) measures a few ratios that a noisy machine does not
move much, and exits with 1 if one is three times worse than recorded. Exit 2: a part could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.figures import FAR, Figure
from tests.bench.machine import machine
from tests.bench.plot import plot
from tests.bench.report import PARTS, as_text, document, merged, regressions, splice, write
from tests.bench.setting import Setting

__all__ = ["RECORDED", "recorded"]

ROOT = Path(__file__).resolve().parents[2]
RECORDED, PAGE, PLOT, RESULTS = (
    Path(__file__).parent / "recorded.json",
    ROOT / "docs" / "proofs" / "performance.md",
    ROOT / "docs" / "images" / "performance.svg",
    ROOT / ".bench" / "results.json",
)
SDK, SDK_VERSION = ROOT / ".bench" / "sdk", "0.2.186"
SHORT = ("counts", "throughput", "start", "growth")


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # daemons and directories are cleared away then, too
    names = tuple(options.names) or (SHORT if options.short else PARTS)
    facts, began = machine(), time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=options.scratch))
    try:
        setting = _setting(options, scratch)
        figures, failed = _measure(names, setting)
        worse = options.short and _far_worse(figures, setting)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    facts |= {"load_after": round(os.getloadavg()[0], 2), "seconds": round(time.monotonic() - began),
              "stolen": setting.undisturbed.facts()}  # fmt: skip
    data = document(figures, facts, setting.size)
    write(options.json, data)
    print(f"{as_text(figures)}\n\n{len(figures)} figures, {facts['seconds']} s, load {facts['load_before']} before and "
          f"{facts['load_after']} after; {options.json}")  # fmt: skip
    if options.record and not failed:
        _record(data)
    return 2 if failed else int(worse) if options.short else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.run", description="Measure clisup beside its references.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument(
        "--short", action="store_true", help=f"a minute; exit 1 if a ratio is {FAR:g} times worse than recorded"
    )
    parser.add_argument(
        "--json", type=Path, default=RESULTS, help="where the figures go (default: .bench/results.json)"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep them: tests/bench/recorded.json, docs/proofs/performance.md"
    )
    parser.add_argument("--no-sdk", action="store_true", help="leave claude-agent-sdk out, which pip would install")
    parser.add_argument("--scratch", type=Path, default=None, help="a directory for what is written (default: TMPDIR)")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(PARTS)):
        parser.error(f"cannot measure {', '.join(unknown)}, because there is no such part; take of {', '.join(PARTS)}")
    if options.short and options.record:
        parser.error("cannot record a short run, because its figures are too coarse; leave --short out")
    return options


def _setting(options: argparse.Namespace, scratch: Path) -> Setting:
    if options.short:
        return Setting(scratch, "short")
    blemees = os.environ.get("BLEMEES")
    wants_sdk = not options.no_sdk and (not options.names or "throughput" in options.names)
    return Setting(scratch, sdk=_sdk() if wants_sdk else None, blemees=Path(blemees).resolve() if blemees else None)


def _sdk() -> Path | None:
    """The Python of an environment with the SDK alone, made where it is missing; None where that is impossible."""
    python = SDK / "bin" / "python"
    if (SDK / f".{SDK_VERSION}").exists():
        return python
    print(f"installing claude-agent-sdk {SDK_VERSION} into {SDK} ...", file=sys.stderr, flush=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", SDK], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        subprocess.run([*pip, f"claude-agent-sdk=={SDK_VERSION}"], check=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"without claude-agent-sdk: {error}", file=sys.stderr, flush=True)
        return None
    (SDK / f".{SDK_VERSION}").touch()
    return python


def _measure(names: tuple[str, ...], setting: Setting) -> tuple[list[Figure], list[str]]:
    """A part that breaks does not take the others with it."""
    figures: list[Figure] = []
    failed = []
    for name in (part for part in PARTS if part in names):
        setting.say(f"-- {name}")
        setting.undisturbed.renew()
        try:
            figures += import_module(f"tests.bench.{name}").measure(setting)
        except Exception:
            failed.append(name)
            traceback.print_exc()
    if failed:
        print(f"! not measured: {', '.join(failed)}", file=sys.stderr, flush=True)
    return figures, failed


def recorded() -> dict[str, Any] | None:
    """What was last recorded, or None."""
    return dict(json.loads(RECORDED.read_text())) if RECORDED.exists() else None


def _record(data: dict[str, Any]) -> None:
    kept = merged(recorded(), data)
    write(RECORDED, kept)
    PAGE.write_text(splice(PAGE.read_text(), kept))
    PLOT.write_text(plot(kept["figures"]))
    print(f"recorded: {', '.join(str(path.relative_to(ROOT)) for path in (RECORDED, PAGE, PLOT))}")


def _far_worse(figures: list[Figure], setting: Setting) -> bool:
    """Whether a ratio is far off what was recorded, twice in a row: the machine may have had something else to do."""
    before = recorded()
    if before is None:
        print("nothing is recorded to compare with")
        return False
    worse = regressions(figures, before)
    for line in worse.values():
        print("!", line, flush=True)
    if not worse:
        print("no ratio is far worse than recorded")
        return False
    again, failed = _measure(tuple({key.partition(":")[0] for key in worse}), setting)
    still = {key: line for key, line in regressions(again, before).items() if key in worse}
    for line in still.values():
        print("! again:", line)
    return bool(still or failed)


if __name__ == "__main__":
    sys.exit(main())

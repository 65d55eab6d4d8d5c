"""Record what real ACP agents say in a dialogue with the adapter: the golden files of its decoder.

    python -m tests.e2e.acp.record                 # every run, two at a time
    python -m tests.e2e.acp.record text memory     # some of them, by the first name of a session

The agent gets the adapter's own words: its launch spec, then the decoder's replies. Home and directory are thrown away, the
environment is built from nothing, the fake API is on loopback. Stdout is stored as it came, but for scratch paths, ports and
pids, and for the list of slash commands: qwen tells 560 kB of them and of skills in each session; one is kept. Two recordings
differ in ids, times and durations.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clisup.backends.acp import AcpAdapter
from clisup.backends.base import LaunchRequest
from tests.e2e.acp.dialogue import Talk, converse
from tests.e2e.acp.qwen import QUIET, RUNS, VERSION, Run, qwen_acp_command, scenario_of
from tests.e2e.lab import ROOT
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.qwen.lab import environment

RECORDINGS = ROOT / "tests" / "recordings" / "acp" / f"qwen-{VERSION}"


def record(runs: tuple[Run, ...], target: Path) -> list[str]:
    """The runs of one session, one after the other, with one home and one fake."""
    root = Path(tempfile.mkdtemp(prefix="clisup-record-"))
    for name in ("home", "cwd"):
        (root / name).mkdir()
    lines, session = [], None
    with FakeChatAPI(scenario_of(runs[0].scenario)) as api:
        for run in runs:
            native = session if run.session == "again" else run.session
            request = LaunchRequest(
                command=tuple(qwen_acp_command()),
                prompt=run.prompt,
                native_session_id=native,
                resume=native is not None,
                cwd=str(root / "cwd"),
                **run.request,
            )
            variables = {**environment(run.url or api.url, key=run.key), **QUIET}
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(root / "home"), "LANG": "C.UTF-8", **variables}
            kill = (run.kill_after, signal.SIGKILL) if run.kill_after else None
            talk = converse(AcpAdapter(), request, env, cancel_after=run.cancel_after, signal_after=kill)
            session = next(
                (e.native_session_id for d in talk.decoded for e in d.events if e.type == "session_init"), None
            )
            lines.append(_store(run, request, talk, sorted(env), root, target))
    shutil.rmtree(root, ignore_errors=True)
    return lines


def _store(run: Run, request: LaunchRequest, talk: Talk, names: list[str], root: Path, target: Path) -> str:
    launch: dict[str, Any] = {"native_session_id": request.native_session_id, "resume": request.resume, **run.request}
    meta = {
        "scenario": run.scenario,
        "cli_version": VERSION,
        "argv": ["node", "--expose-gc", "cli.js", "--acp"],
        "environment": names,
        "prompt": run.prompt,
        "launch": launch,
        "carried": {"cost_usd": 0.0},
        "exit_code": talk.returncode if talk.returncode >= 0 else None,
        "signal": -talk.returncode if talk.returncode < 0 else None,
        "stderr": talk.stderr.decode(errors="replace"),
        "ended": "by a kill" if run.kill_after else "by session/cancel" if run.cancel_after else "by itself",
    }
    target.mkdir(parents=True, exist_ok=True)
    stdout = "\n".join(_without_commands(line) for line in _stable(talk.stdout.decode(), root).split("\n"))
    (target / f"{run.name}.jsonl").write_text(stdout, encoding="utf-8", newline="")
    text = _stable(json.dumps(meta, indent=1, ensure_ascii=False), root)
    (target / f"{run.name}.meta.json").write_text(text + "\n", encoding="utf-8")
    return f"{run.name}: exit {talk.returncode}, {stdout.count(chr(10))} lines, {len(stdout)} characters"


def _stable(words: str, root: Path) -> str:
    """Replace what names this machine and this run's place."""
    words = words.replace(str(root), "/scratch").replace(str(ROOT), "/checkout")
    words = words.replace(re.sub("[^A-Za-z0-9]", "-", str(root)), "-scratch")
    words = re.sub(r"Process Group PGID: \d+", "Process Group PGID: 1000", words)
    words = re.sub(r'"pid":\d+', '"pid":1000', words)
    words = re.sub(r"Platform: linux x64 \([^)]*\)", "Platform: linux x64 (6.1.0)", words)
    return re.sub(r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:8080", words)


def _without_commands(line: str) -> str:
    if "available_commands_update" not in line:
        return line
    frame = json.loads(line)
    del frame["params"]["update"]["availableCommands"][1:]
    frame["params"]["update"].pop("_meta", None)
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", nargs="*", help="default: all")
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    options = parser.parse_args()
    chosen = [runs for runs in RUNS if not options.session or runs[0].name in options.session]
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda runs: record(runs, options.to), chosen):
            print("\n".join(lines), flush=True)
    print(f"{len(chosen)} sessions in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

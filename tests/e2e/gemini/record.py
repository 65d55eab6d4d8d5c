"""Record what the real gemini prints for each scenario: the golden files of the decoder.

    python -m tests.e2e.gemini.record                 # every scenario, two at a time
    python -m tests.e2e.gemini.record text memory     # some of them

Each run has a throw-away HOME, an environment built from nothing, the adapter's own launch spec and a fake API on loopback.
Stdout goes to a file, as in the daemon. Scratch paths and ports are replaced by stable ones; between two recordings times,
durations and the ids of calls differ, not the frames.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clisup.backends.base import LaunchRequest, LaunchSpec
from clisup.backends.gemini.adapter import GeminiAdapter
from tests.e2e.gemini.fake_api import FAKE_KEY, FakeGeminiAPI
from tests.e2e.gemini.lab import COMMAND, write_settings
from tests.e2e.gemini.scenarios import SCENARIOS, Run, Scenario
from tests.e2e.lab import CLIS_ROOT, ROOT
from tests.versions import VERSIONS

VERSION = VERSIONS["gemini"]
RECORDINGS = ROOT / "tests" / "recordings" / "gemini" / VERSION
LIMIT_SECONDS = 120.0
ADAPTER = GeminiAdapter()


def record(scenario: Scenario, target: Path) -> list[str]:
    """Record all runs of a scenario: one session, one home, one fake."""
    scratch = Path(tempfile.mkdtemp(prefix="clisup-record-"))
    home, cwd, tmp = scratch / "home", scratch / "cwd", scratch / "tmp"
    for directory in (home, cwd, tmp):
        directory.mkdir()
    (cwd / "secret.txt").write_text("the file's own words\n")
    session = "_" + str(uuid.uuid5(uuid.NAMESPACE_URL, f"clisup:gemini:{scenario.name}"))
    try:
        with FakeGeminiAPI(scenario) as api:
            return [_record_run(scenario, run, session, scratch, api, target) for run in scenario.runs]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _record_run(scenario: Scenario, run: Run, session: str, scratch: Path, api: FakeGeminiAPI, target: Path) -> str:
    launch = {"native_session_id": session, "resume": run.resume, "model": "fake-model", **run.request}
    request = LaunchRequest(command=COMMAND, prompt=run.prompt, cwd=str(scratch / "cwd"), **launch)
    spec = ADAPTER.launch(request)
    write_settings(scratch / "home", run.settings)
    environment = _environment(spec, run, scratch, api)
    before, served = len(api.requests), api.served.so_far()
    exit_code, out, err, sent = _drive(spec, run, environment, scratch)
    meta: dict[str, Any] = {
        "scenario": scenario.name,
        "note": scenario.note,
        "cli_version": VERSION,
        "argv": ["gemini", *spec.argv[len(COMMAND) :]],
        "environment": sorted(environment),
        "launch": launch,
        "settings": run.settings,
        "prompt": run.prompt,
        "exit_code": exit_code if exit_code >= 0 else None,
        "signal": -exit_code if exit_code < 0 else None,
        "stderr": err,
        "api_requests": [request.path.split("?")[0] for request in api.requests[before:]],
        "served": api.served.since(served),
        "signals_sent": sent,
    }
    target.mkdir(parents=True, exist_ok=True)
    name = scenario.name + run.suffix
    (target / f"{name}.jsonl").write_text(_stable(out, scratch), encoding="utf-8", newline="")
    rendered = _stable(json.dumps(meta, indent=1, ensure_ascii=False), scratch)
    (target / f"{name}.meta.json").write_text(rendered + "\n", encoding="utf-8")
    return f"{name}: exit {exit_code}, {out.count(chr(10))} lines, {len(meta['api_requests'])} requests"


def _environment(spec: LaunchSpec, run: Run, scratch: Path, api: FakeGeminiAPI) -> dict[str, str]:
    url = f"http://127.0.0.1:{_closed_port()}" if run.closed_port else api.url
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scratch / "home"), "LANG": "C.UTF-8", "NO_COLOR": "1"}
    key = {"GEMINI_API_KEY": FAKE_KEY} if run.key is None else {}
    given = {**own, "TMPDIR": str(scratch / "tmp"), "GOOGLE_GEMINI_BASE_URL": url, **key, **spec.env}
    return {**dict.fromkeys(spec.closed_env, ""), **given}


def _closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _drive(
    spec: LaunchSpec, run: Run, environment: dict[str, str], scratch: Path
) -> tuple[int, str, str, list[dict[str, Any]]]:
    """Run the CLI as the keeper does; send the run's signal when its line has come, kill after the limit."""
    out, err = scratch / "out", scratch / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            spec.argv, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, cwd=scratch / "cwd", env=environment
        )
        guard = threading.Timer(LIMIT_SECONDS, process.kill)
        guard.start()
        assert process.stdin is not None
        process.stdin.write(spec.stdin.encode())
        process.stdin.close()
        sent: list[dict[str, Any]] = []
        while process.poll() is None:
            time.sleep(0.02)
            if run.signal and not sent and run.signal.after.encode() in out.read_bytes():
                time.sleep(run.signal.delay)
                process.send_signal(signal.Signals[run.signal.name])
                sent.append({"signal": run.signal.name, "after": run.signal.after})
        guard.cancel()
    return process.returncode, out.read_text(), err.read_text(errors="replace"), sent


def _stable(words: str, scratch: Path) -> str:
    words = words.replace(str(scratch), "/scratch").replace(str(ROOT), "/checkout").replace(str(CLIS_ROOT), "/checkout")
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    options = parser.parse_args()
    names = options.scenario or [name for name, scenario in SCENARIOS.items() if scenario.recorded]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda name: record(SCENARIOS[name], options.to), names):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()

"""Record what the real opencode prints for each scenario: the golden files of the decoder.

    python -m tests.e2e.opencode.record                 # every scenario, two at a time; --workers for more
    python -m tests.e2e.opencode.record text memory     # some of them

The CLI is started as the daemon would start it: with the adapter's own launch spec and stdout in a file. Home and directory are
thrown away, the environment is built from nothing, the fake API is on loopback. Scratch paths and ports are replaced by stable
ones. Two recordings differ in ids, times and durations.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clisup.backends.base import LaunchRequest, LaunchSpec
from clisup.backends.opencode.adapter import OpencodeAdapter
from tests.e2e.lab import CLIS_ROOT, ROOT, poll
from tests.e2e.opencode.lab import COMMAND, QUIET, write_settings
from tests.e2e.opencode.scenarios import SCENARIOS, UNKNOWN_SESSION, OpencodeRun, OpencodeScenario
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.versions import VERSIONS

VERSION = VERSIONS["opencode"]
RECORDINGS = ROOT / "tests" / "recordings" / "opencode" / VERSION
LIMIT_SECONDS = 600.0
ADAPTER = OpencodeAdapter()


def record(scenario: OpencodeScenario, target: Path) -> list[str]:
    """Record all runs of a scenario: one session, one home, one fake."""
    root = Path(tempfile.mkdtemp(prefix="clisup-record-"))
    for name in ("home", "cwd"):
        (root / name).mkdir()
    lines, session = [], None
    try:
        with FakeChatAPI(scenario) as api:  # type: ignore[arg-type]
            write_settings(root / "home", scenario.url or api.url, scenario.settings)
            for run in scenario.runs:
                out = _record_run(scenario, run, session, root, api, target)
                found = re.search(r'"sessionID":"(\w+)"', out)
                session = found[1] if found else session
                lines.append(f"{run.name or scenario.name}: {out.count(chr(10))} lines")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return lines


def _record_run(
    scenario: OpencodeScenario, run: OpencodeRun, session: str | None, root: Path, api: FakeChatAPI, target: Path
) -> str:
    known = UNKNOWN_SESSION if run.session == "unknown" else session if run.session == "resume" else None
    launch = {
        "native_session_id": known,
        "resume": run.session != "new",
        "setting_sources": "user,project",
        **run.request,
    }
    facts = {**launch, "args": tuple(launch.get("args", ()))}
    request = LaunchRequest(command=COMMAND, prompt=run.prompt, cwd=str(root / "cwd"), **facts)
    spec = ADAPTER.launch(request)
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(root / "home"), "LANG": "C.UTF-8", **QUIET}
    before, served = len(api.requests), api.served.so_far()
    code, out, err, sent = _drive(spec, {**own, **spec.env}, root, run, api)
    meta: dict[str, Any] = {
        "scenario": scenario.name,
        "cli_version": VERSION,
        "argv": ["opencode", *spec.argv[1:]],
        "environment": sorted({*own, *spec.env}),
        "launch": launch,
        "settings": scenario.settings,
        "prompt": run.prompt,
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "stderr": err,
        "api_requests": len(api.requests) - before,
        "served": api.served.since(served),
        "signals_sent": sent,
    }
    target.mkdir(parents=True, exist_ok=True)
    name = run.name or scenario.name
    (target / f"{name}.jsonl").write_text(_stable(out, root), encoding="utf-8", newline="")
    rendered = _stable(json.dumps(meta, indent=1, ensure_ascii=False), root)
    (target / f"{name}.meta.json").write_text(rendered + "\n", encoding="utf-8")
    return out


def _drive(
    spec: LaunchSpec, env: dict[str, str], root: Path, run: OpencodeRun, api: FakeChatAPI
) -> tuple[int, str, str, list[str]]:
    """Run the CLI to its end; send the run's signal when the model has been asked."""
    with (root / "out").open("wb") as stdout, (root / "err").open("wb") as stderr:
        process = subprocess.Popen(
            spec.argv, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, cwd=root / "cwd", env=env
        )
    assert process.stdin is not None
    process.stdin.write(spec.stdin.encode())
    process.stdin.close()
    sent: list[str] = []
    try:
        if run.signal:
            asked = len(api.main_requests)
            poll(lambda: len(api.main_requests) > asked, "a request", LIMIT_SECONDS)
            time.sleep(run.signal.delay)
            process.send_signal(signal.Signals[run.signal.name])
            sent.append(run.signal.name)
        process.wait(LIMIT_SECONDS)
    finally:
        process.kill()
        process.wait()
    return process.returncode, (root / "out").read_text(), (root / "err").read_text(), sent


def _stable(words: str, root: Path) -> str:
    for path, name in ((str(root), "/scratch"), (str(ROOT), "/checkout"), (str(CLIS_ROOT), "/checkout")):
        words = words.replace(path, name).replace(path.lstrip("/"), name.lstrip("/"))
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    parser.add_argument("--workers", type=int, default=2, help="recordings at a time")
    options = parser.parse_args()
    names = options.scenario or [name for name, scenario in SCENARIOS.items() if scenario.recorded]
    with ThreadPoolExecutor(max_workers=options.workers) as pool:
        for lines in pool.map(lambda name: record(SCENARIOS[name], options.to), names):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()

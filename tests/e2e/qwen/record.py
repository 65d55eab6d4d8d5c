"""Record what the real Qwen Code prints for each scenario: the golden files of the decoder.

    python -m tests.e2e.qwen.record                 # every scenario, two at a time
    python -m tests.e2e.qwen.record text memory     # some of them

The CLI is started as the daemon would start it: with the adapter's own launch spec and stdout in a file. Home and directory are
thrown away, the environment is built from nothing, the fake API is on loopback. Stdout is stored as it came, except that scratch
paths, ports and the names of this checkout are replaced by stable ones. Two recordings differ in uuids, times and durations.
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
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from clisup.backends.base import Carried, LaunchRequest, LaunchSpec
from clisup.backends.qwen.adapter import QwenAdapter
from clisup.model.lines.framing import LineFramer
from clisup.model.usage import NO_USAGE, Usage
from tests.e2e.lab import CLIS_ROOT, ROOT, poll
from tests.e2e.qwen.fake_api import FakeChatAPI
from tests.e2e.qwen.lab import environment, qwen_command
from tests.e2e.qwen.scenarios import SCENARIOS, UNKNOWN_SESSION, QwenRun, QwenScenario
from tests.versions import VERSIONS

VERSION = VERSIONS["qwen"]
RECORDINGS = ROOT / "tests" / "recordings" / "qwen" / VERSION
LIMIT_SECONDS = 240.0


class Session:
    """The state that the runs of one session share: the fake, the scratch directories, the id and the running usage."""

    def __init__(self, scenario: QwenScenario, run: QwenRun) -> None:
        self.id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"clisup:qwen:{scenario.name}{run.suffix}"))
        self.root = Path(tempfile.mkdtemp(prefix="clisup-record-"))
        for name in ("home", "cwd", "run"):
            (self.root / name).mkdir()
        if run.settings is not None:
            (self.root / "home" / ".qwen").mkdir()
            (self.root / "home" / ".qwen" / "settings.json").write_text(json.dumps(run.settings))
        self.api = FakeChatAPI(scenario).__enter__()
        self.usage: Usage | None = NO_USAGE

    def request(self, run: QwenRun) -> LaunchRequest:
        mcp = self.root / "mcp.json"
        if run.mcp is not None:
            mcp.write_text(json.dumps({"mcpServers": run.mcp}).replace("HERE", str(ROOT / "tests" / "e2e")))
        return LaunchRequest(
            command=_command(),
            prompt=run.prompt,
            native_session_id=UNKNOWN_SESSION if run.session == "unknown" else self.id,
            resume=run.session in ("resume", "unknown"),
            cwd=str(self.root / "cwd"),
            permission_mode=run.mode,
            mcp_config_file=str(mcp) if run.mcp is not None else None,
            setting_sources=run.sources,
            args=run.args,
            output_schema=run.schema,
            scratch=str(self.root / "run"),
        )

    def stable(self, words: str) -> str:
        """Replace what names this machine; the CLI also writes paths as slugs, with dashes for slashes."""
        for path, name in ((str(self.root), "/scratch"), (str(ROOT), "/checkout"), (str(CLIS_ROOT), "/checkout")):
            words = words.replace(path, name).replace(re.sub("[^A-Za-z0-9]", "-", path), name.replace("/", "-"))
        words = re.sub(r"Process Group PGID: \d+", "Process Group PGID: 1000", words)
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", words)

    def close(self) -> None:
        self.api.close()
        shutil.rmtree(self.root, ignore_errors=True)


def _command() -> tuple[str, ...]:
    """The worker behind the launcher, as the daemon finds it."""
    launcher = str(qwen_command().resolve())
    found = [prefix for prefix in QwenAdapter().workers(launcher) if Path(prefix[0]).exists()]
    return tuple(found[0])


def record(scenario: QwenScenario, target: Path) -> list[str]:
    """Record all runs of a scenario; a run with a new session starts with a fresh home and a fresh fake."""
    lines: list[str] = []
    session: Session | None = None
    try:
        for run in scenario.runs:
            if session is None or run.session == "new":
                if session is not None:
                    session.close()
                session = Session(scenario, run)
            lines.append(_record_run(scenario, run, session, target))
    finally:
        if session is not None:
            session.close()
    return lines


def _record_run(scenario: QwenScenario, run: QwenRun, session: Session, target: Path) -> str:
    name, before = scenario.name + run.suffix, len(session.api.requests)
    served = session.api.served.so_far()
    adapter, request = QwenAdapter(), session.request(run)
    spec = adapter.launch(request)
    variables = environment(session.api.url if scenario.url is None else scenario.url, key=scenario.key)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(session.root / "home"), "LANG": "C.UTF-8", **variables}
    code, out, err, sent = _drive(spec, env | dict(spec.env), session.root, run)
    requests = session.api.requests[before:]
    launch: dict[str, Any] = {"native_session_id": request.native_session_id, "resume": request.resume}
    launch |= {"permission_mode": run.mode} if run.mode else {}
    launch |= {"args": list(run.args)} if run.args else {}
    launch |= {"output_schema": run.schema} if run.schema else {}
    meta: dict[str, Any] = {
        "scenario": scenario.name,
        "note": scenario.note,
        "cli_version": VERSION,
        "argv": list(spec.argv),
        "environment": sorted(env.keys() | spec.env.keys()),
        "files": sorted(spec.files),
        "prompt": run.prompt,
        "launch": launch,
        "carried": {"usage": msgspec.to_builtins(session.usage)} if session.usage else {},
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "stderr": err,
        "api_requests": len(requests),
        "main_requests": sum(one.main for one in requests),
        "served": session.api.served.since(served),
        "signals_sent": sent,
        "ended": "by the recorder's signal" if sent else "by itself",
    }
    decoder = adapter.decoder(Carried(usage=session.usage), request)
    for one in [decoder.decode(line) for line in LineFramer().feed(out)]:
        session.usage = one.terminal.usage_total if one.terminal else session.usage
    target.mkdir(parents=True, exist_ok=True)
    stdout = session.stable(out.decode())
    (target / f"{name}.jsonl").write_text(stdout, encoding="utf-8", newline="")
    rendered = session.stable(json.dumps(meta, indent=1, ensure_ascii=False))
    (target / f"{name}.meta.json").write_text(rendered + "\n", encoding="utf-8")
    return f"{name}: exit {code}, {stdout.count(chr(10))} lines, {len(stdout)} characters, {len(requests)} requests"


def _drive(
    spec: LaunchSpec, env: dict[str, str], root: Path, run: QwenRun
) -> tuple[int, bytes, str, list[dict[str, Any]]]:
    """Run the CLI to its end, its stdout in a file; send the run's signal when its line has come."""
    for name, text in spec.files.items():
        (root / "run" / name).write_text(text)
    out = root / "out"
    with out.open("wb") as stdout, (root / "err").open("wb") as stderr:
        process = subprocess.Popen(
            spec.argv, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, cwd=root / "cwd", env=env
        )
    assert process.stdin is not None
    process.stdin.write(spec.stdin.encode())
    process.stdin.close()
    sent: list[dict[str, Any]] = []
    try:
        if run.signal:
            wanted = run.signal.after.encode()
            poll(lambda: wanted in out.read_bytes() or process.poll() is not None, f"{run.signal.after!r}")
            time.sleep(run.signal.delay)
            process.send_signal(signal.Signals[run.signal.name])
            sent.append({"signal": run.signal.name, "after": run.signal.after, "delay_s": run.signal.delay})
        process.wait(LIMIT_SECONDS)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out.read_bytes(), (root / "err").read_text(), sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    options = parser.parse_args()
    names = options.scenario or [name for name, scenario in SCENARIOS.items() if scenario.recorded]
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda name: record(SCENARIOS[name], options.to), names):
            print("\n".join(lines), flush=True)
    print(f"{len(names)} scenarios in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

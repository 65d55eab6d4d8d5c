"""Record what the real claude CLI prints for each scenario: the golden files of the decoder.

    python -m tests.e2e.record_claude                 # every scenario, two at a time
    python -m tests.e2e.record_claude text memory     # some of them
    python -m tests.e2e.record_claude live            # the dialogues with a live process, all of them

Each run has a throw-away HOME, an environment built from nothing and a fake API on loopback; a caller who wants a
guarantee that nothing else is reached starts it in a network namespace that has only `lo`. Stdout is stored as it
came, except that scratch paths, ports, pids and the names of this checkout are replaced by stable ones. Two full
recordings differ in uuids other than the session's, task and run ids, timestamps, durations and retry delays, not in
the frames. One exception is a race in the CLI: `stall_before_headers_sigint` ends with a result or
without one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.e2e.dialogue import Cue, Speaker
from tests.e2e.dialogues import DIALOGUES
from tests.e2e.fake_messages_api import FAKE_KEY, FAKE_OAUTH_TOKEN, FakeMessagesAPI
from tests.e2e.lab import claude_binary
from tests.e2e.scenarios import SCENARIOS, UNKNOWN_SESSION, Run, Scenario
from tests.versions import VERSIONS

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
VERSION = VERSIONS["claude"]
RECORDINGS = HERE.parent / "recordings" / "claude" / VERSION
BASE = ["-p", "--output-format", "stream-json", "--include-partial-messages", "--verbose", "--setting-sources", "user"]
LIVE = ["--input-format", "stream-json", "--permission-prompt-tool", "stdio"]
RECORDED = {**SCENARIOS, **DIALOGUES}
LIMIT_SECONDS = 240.0
SWITCHES = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
CREDENTIALS: dict[str, dict[str, str]] = {
    "key": {"ANTHROPIC_API_KEY": FAKE_KEY},
    "oauth": {"CLAUDE_CODE_OAUTH_TOKEN": FAKE_OAUTH_TOKEN},
    "none": {},
}


class Scratch:
    """A throw-away home and working directory, and the replacement of their names in what is stored."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="clisup-record-"))
        self.home, self.cwd = self.root / "home", self.root / "cwd"
        self.home.mkdir()
        self.cwd.mkdir()

    def fill(self, argument: str) -> str:
        return argument.replace("HERE", str(HERE)).replace("CWD", str(self.cwd))

    def stable(self, words: str, pid: int) -> str:
        """Replace what names this machine; the CLI also writes paths as slugs, with dashes for slashes."""
        for path, name in ((str(self.root), "/scratch"), (str(REPOSITORY), "/checkout")):
            words = words.replace(path, name).replace(re.sub("[^A-Za-z0-9]", "-", path), name.replace("/", "-"))
        words = re.sub(r"/tmp/claude-\d+/", "/scratch/tmp/", words)
        words = words.replace(f"/tmp/cc-socks/{pid}.sock", "/scratch/tmp/1000.sock")
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", words)

    def remove(self) -> None:
        slug = re.sub("[^A-Za-z0-9]", "-", str(self.cwd))
        shutil.rmtree(self.root, ignore_errors=True)
        # the CLI keeps the output of tasks outside of HOME, in a folder named after the working directory
        shutil.rmtree(Path("/tmp") / f"claude-{os.geteuid()}" / slug, ignore_errors=True)


class Session:
    """The state that the runs of one session share: the fake, the scratch directories and the session id."""

    def __init__(self, scenario: Scenario, run: Run) -> None:
        self.id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"clisup:{scenario.name}{run.suffix}"))
        self.scratch = Scratch()
        self.api = FakeMessagesAPI(scenario)

    def flags(self, run: Run) -> list[str]:
        fork_id = str(uuid.uuid5(uuid.NAMESPACE_URL, self.id))
        return {
            "new": ["--session-id", self.id],
            "again": ["--session-id", self.id],
            "resume": ["--resume", self.id],
            "fork": ["--resume", self.id, "--fork-session", "--session-id", fork_id],
            "unknown": ["--resume", UNKNOWN_SESSION],
            "none": [],
        }[run.session]

    def environment(self, run: Run, auth: str) -> dict[str, str]:
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.scratch.home), "LANG": "C.UTF-8"}
        return {**own, "ANTHROPIC_BASE_URL": self.api.url, **CREDENTIALS[auth], **SWITCHES, **run.env}

    def close(self) -> None:
        self.api.close()
        self.scratch.remove()


def record(scenario: Scenario, binary: Path, target: Path) -> list[str]:
    """Record all runs of a scenario; a run with a new session starts with a fresh home and a fresh fake."""
    lines: list[str] = []
    session: Session | None = None
    try:
        for run in scenario.runs:
            if session is None or run.session == "new":
                if session is not None:
                    session.close()
                session = Session(scenario, run)
                session.api.__enter__()
            lines.append(_record_run(scenario, run, session, binary, target))
    finally:
        if session is not None:
            session.close()
    return lines


def _record_run(scenario: Scenario, run: Run, session: Session, binary: Path, target: Path) -> str:
    name = scenario.name + run.suffix
    before, served = len(session.api.requests), session.api.served.so_far()
    flags = [*BASE, *(LIVE if run.dialogue else []), *session.flags(run)]
    argv = [*flags, *(session.scratch.fill(argument) for argument in run.args)]
    environment = session.environment(run, scenario.auth)
    process = subprocess.Popen(
        [str(binary), *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=session.scratch.cwd,
        env=environment,
    )
    heard = _converse(process, run.dialogue) if run.dialogue else _drive(process, run)
    requests = session.api.requests[before:]
    meta: dict[str, Any] = {
        "scenario": scenario.name,
        "note": scenario.note,
        "cli_version": VERSION,
        "argv": ["claude", *argv],
        "environment": sorted(environment),
        "prompt": None if run.dialogue else run.prompt,
        **({"launch": {"live": True}} if run.dialogue else {}),
        "exit_code": process.returncode if process.returncode >= 0 else None,
        "signal": signal.Signals(-process.returncode).name if process.returncode < 0 else None,
        "stderr": heard.stderr,
        "api_requests": len(requests),
        "main_requests": sum(request.main for request in requests),
        "served": session.api.served.since(served),
        "signals_sent": heard.signals,
        "ended": "by the recorder's signal" if heard.signals else "by itself",
    }
    stdout = session.scratch.stable(heard.stdout, process.pid)
    meta |= _dialogue(heard, stdout)
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.jsonl").write_text(stdout, encoding="utf-8", newline="")
    rendered = session.scratch.stable(json.dumps(meta, indent=1, ensure_ascii=False), process.pid)
    (target / f"{name}.meta.json").write_text(rendered + "\n", encoding="utf-8")
    return f"{name}: exit {process.returncode}, {stdout.count(chr(10))} lines, {len(stdout)} characters"


class Heard(NamedTuple):
    """What a process said, what it was told, and the signals it got; `told` as in `Speaker.said`."""

    stdout: str
    stderr: str
    signals: list[dict[str, Any]]
    told: list[tuple[int, str | None]] | None = None


def _dialogue(heard: Heard, stdout: str) -> dict[str, Any]:
    """The other direction of a dialogue, by the place in stdout: every line, and how many it had been told there."""
    if heard.told is None:
        return {}
    ends = [0, *accumulate(len(line.encode()) for line in stdout.splitlines(keepends=True))]
    stdin = [[ends[lines], line] for lines, line in heard.told]
    counts = accumulate(1 if line is not None else 0 for _, line in stdin)
    said = {offset: None if line is None else count for (offset, line), count in zip(stdin, counts, strict=True)}
    return {"stdin": stdin, "said": [[offset, count] for offset, count in said.items()]}


def _converse(process: subprocess.Popen[bytes], cues: tuple[Cue, ...]) -> Heard:
    """Lead the dialogue."""
    assert process.stderr is not None
    errors: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
    reader.start()
    speaker = Speaker(process, cues)
    out = speaker.listen()
    reader.join(5)
    return Heard(out.decode(), b"".join(errors).decode(errors="replace"), speaker.sent, speaker.said)


def _drive(process: subprocess.Popen[bytes], run: Run) -> Heard:
    """Feed the prompt, read both pipes, send the run's signal when its line has come; kill after the limit."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
    reader.start()
    guard = threading.Timer(LIMIT_SECONDS, process.kill)
    guard.start()
    process.stdin.write(run.prompt.encode())
    process.stdin.close()
    lines: list[bytes] = []
    sent: list[dict[str, Any]] = []
    for line in process.stdout:
        lines.append(line)
        if run.signal and not sent and run.signal.after.encode() in line:
            planned = {"signal": run.signal.name, "after": run.signal.after, "delay_s": run.signal.delay}
            sent.append({**planned, "after_line": len(lines)})
            number = signal.Signals[run.signal.name]
            threading.Timer(run.signal.delay, process.send_signal, (number,)).start()
    process.wait()
    guard.cancel()
    reader.join(5)
    return Heard(b"".join(lines).decode(), b"".join(errors).decode(errors="replace"), sent)


def _drain(pipe: IO[bytes], into: list[bytes]) -> None:
    into.extend(pipe)


def _names(wanted: list[str]) -> list[str]:
    if not wanted:
        return [name for name, scenario in RECORDED.items() if scenario.recorded]
    return [name for word in wanted for name in (DIALOGUES if word == "live" else [word])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--binary", type=Path, default=claude_binary())
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    options = parser.parse_args()
    names = _names(options.scenario)
    chosen = [RECORDED[name] for name in names if os.geteuid() == 0 or not RECORDED[name].needs_root]
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda scenario: record(scenario, options.binary, options.to), chosen):
            print("\n".join(lines), flush=True)
    print(f"{len(chosen)} scenarios in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

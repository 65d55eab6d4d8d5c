"""Record what the real codex prints for each scenario: the golden files of both decoders.

    python -m tests.e2e.codex.record                       # every scenario of both kinds
    python -m tests.e2e.codex.record text codex-exec/cut   # some of them

Each run has a throw-away HOME, an environment built from nothing and a fake API on loopback. It is launched with the adapter's own
launch spec, and for app-server the adapter's own decoder leads the dialogue. Stdout is stored as it came, except that scratch
paths, ports and the host's name are replaced by stable ones. Two full recordings differ in ids and timestamps; on a busy
machine some frames change places too, and a command that its sandbox stops may get an item after all (tool_denied).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from clisup.backends.base import Adapter, Carried, Decoder, LaunchRequest, LaunchSpec, Reply, Terminal
from clisup.backends.codex.history import CodexSeed
from clisup.backends.registry import get_adapter
from clisup.backends.transcripts import Seed
from clisup.model.events import ApprovalRequested
from clisup.model.lines.framing import LineFramer
from clisup.model.prompts.history import HistoryMessage
from clisup.model.usage import NO_USAGE, Usage
from tests.e2e.codex.fake_api import FAKE_KEY, FakeResponsesAPI
from tests.e2e.codex.provider import KEY_NAME, ROOT, codex_binary, provider
from tests.e2e.codex.scenarios import MODEL, SCENARIOS, UNKNOWN_SESSION, Act, Run, Scenario
from tests.versions import VERSIONS

VERSION = VERSIONS["codex"]
RECORDINGS = ROOT / "tests" / "recordings"
LIMIT_SECONDS = 60.0
STEERED = "00000000-0000-4000-8000-000000000002"


class Session:
    """The state that the runs of one session share: the fake, the scratch directories, the thread and its totals."""

    def __init__(self, kind: str, scenario: Scenario) -> None:
        self.adapter: Adapter = get_adapter(kind)
        self.scenario = scenario
        # not under /tmp: codex refuses to put its helpers there, and says so on stderr
        self.root = Path(tempfile.mkdtemp(prefix="clisup-record-", dir="/var/tmp"))
        self.home, self.cwd = self.root / "home", self.root / "cwd"
        self.scratch = self.root / "run"
        (self.home / ".codex").mkdir(parents=True)
        self.cwd.mkdir()
        self.scratch.mkdir()
        self.api = FakeResponsesAPI(scenario.script).__enter__()
        if scenario.refused:
            self.api.close()
        self.thread: str | None = None
        self.total: Usage | None = NO_USAGE
        self.dialogue: Dialogue | None = None

    def request(self, run: Run) -> LaunchRequest:
        known = {"new": None, "unknown": UNKNOWN_SESSION, "written": UNKNOWN_SESSION}.get(run.session, self.thread)
        if run.session == "written":
            self._write_history()
            self.total = NO_USAGE
        return LaunchRequest(
            command=(str(codex_binary()),),
            prompt=run.prompt,
            native_session_id=known,
            resume=known is not None,
            cwd=str(self.cwd),
            permission_mode=run.mode,
            args=(*provider(self.api.url), *run.args),
            scratch=str(self.scratch),
            later=run.session == "same",
            **{"model": MODEL, **run.request},
        )

    def _write_history(self) -> None:
        """Write a rollout file as `history` of session/new does."""
        told = [
            HistoryMessage(role="user", content="My name is Ada."),
            HistoryMessage(role="assistant", content="Hello, Ada."),
        ]
        seed = Seed(told, UNKNOWN_SESSION, str(self.cwd), MODEL, "2026-01-02T03:04:05.000000Z")
        path = Path(str(CodexSeed().path(seed, {"HOME": str(self.home)})))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(CodexSeed().lines(seed)))

    def environment(self) -> dict[str, str]:
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return {**own, KEY_NAME: FAKE_KEY} if self.scenario.key else own

    def stable(self, words: str) -> str:
        """Replace what names this machine."""
        for path, name in ((str(self.root), "/scratch"), (str(codex_binary()), "codex"), (str(ROOT), "/checkout")):
            words = words.replace(path, name)
        words = words.replace(f'"serverName":"{socket.gethostname()}"', '"serverName":"host"')
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", words)

    def close(self) -> None:
        self.api.close()
        shutil.rmtree(self.root, ignore_errors=True)


class Dialogue:
    """One process: the decoder reads its lines and answers them. `goes_on`: another turn of the process follows."""

    def __init__(self, spec: LaunchSpec, session: Session) -> None:
        self.thread: str | None = None
        self.process = subprocess.Popen(
            spec.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=session.cwd,
            env={**session.environment(), **spec.env},
        )
        assert self.process.stderr is not None
        self._errors: list[bytes] = []
        self._reader = threading.Thread(target=_drain, args=(self.process.stderr, self._errors), daemon=True)
        self._reader.start()

    def play(
        self, spec: LaunchSpec, decoder: Decoder, request: LaunchRequest, run: Run, *, goes_on: bool
    ) -> tuple[str, str, list[dict[str, Any]]]:
        """Begin a turn and read to its end; stdout, stderr and what was done to the process."""
        assert self.process.stdout is not None
        self.decoder, self.request, self.run, act = decoder, request, run, run.act
        self.terminal: Terminal | None = None
        self._write(spec.stdin)
        if spec.stdin_eof:
            self._close()
        guard = threading.Timer(LIMIT_SECONDS, self.process.kill)
        guard.start()
        framer, lines, done = LineFramer(), list[bytes](), list[dict[str, Any]]()
        for raw in self.process.stdout:
            lines.append(raw)
            for line in framer.feed(raw):
                self._answer(line)
            if act and not done and act.after.encode() in raw:
                done.append({"did": act.what, "after": act.after, "delay_s": act.delay, "after_line": len(lines)})
                threading.Timer(act.delay, self._do, (act,)).start()
            if self.terminal and goes_on:
                break
            if self.terminal and request.live and (not act or any(b'"id":"steer-' in line for line in lines)):
                self._close()
        if not goes_on:
            self.process.wait()
            self._reader.join(5)
        guard.cancel()
        return b"".join(lines).decode(), b"".join(self._errors).decode(errors="replace"), done

    def _answer(self, line: Any) -> None:
        decoded = self.decoder.decode(line)
        self.terminal = decoded.terminal or self.terminal
        for event in decoded.events:
            if event.type == "session_init":
                self.thread = getattr(event, "native_session_id", None)
            if isinstance(event, ApprovalRequested):
                answer = self.run.answers.get(event.tool_name, self.run.answer)
                if answer is not None:
                    self._say(self.decoder.answer(event.approval_id, answer) or "")
        for reply in decoded.replies:
            self._say(reply)

    def _say(self, reply: Reply) -> None:
        if isinstance(reply, str):
            self._write(reply)
        else:
            self._close()

    def _do(self, act: Act) -> None:
        if act.what == "interrupt":
            self._write(self.decoder.interrupt() or "")
        elif act.what == "steer":
            asked = replace(self.request, prompt=act.prompt, command_prompt=False, later=True, prompt_id=STEERED)
            self._write(self.decoder.steer("", asked) or "")
        else:
            self.process.send_signal(signal.Signals[act.what])

    def _write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def _close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


def record(kind: str, scenario: Scenario, target: Path) -> list[str]:
    """Record all runs of a scenario."""
    session = Session(kind, scenario)
    try:
        following = [*scenario.runs[1:], None]
        return [
            _record_run(
                kind, session, run, target / kind / VERSION, goes_on=then is not None and then.session == "same"
            )
            for run, then in zip(scenario.runs, following, strict=True)
        ]
    finally:
        session.close()


def _record_run(kind: str, session: Session, run: Run, target: Path, *, goes_on: bool) -> str:
    name = session.scenario.name + run.suffix
    before, served = len(session.api.requests), session.api.served.so_far()
    request, carried = session.request(run), Carried(usage=session.total)
    spec = session.adapter.launch(request)
    for file, content in spec.files.items():
        (session.scratch / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    if session.dialogue is None or run.session != "same":
        session.dialogue = Dialogue(spec, session)
    dialogue, decoder = session.dialogue, session.adapter.decoder(carried, request)
    out, err, done = dialogue.play(spec, decoder, request, run, goes_on=goes_on)
    session.thread = dialogue.thread or session.thread
    code = dialogue.process.returncode if not goes_on else 0
    meta: dict[str, Any] = {
        "scenario": session.scenario.name,
        "cli_version": VERSION,
        "argv": list(spec.argv),
        "environment": sorted([*session.environment(), *spec.env]),
        "launch": _launch(request),
        "carried": {"usage": msgspec.to_builtins(carried.usage)} if carried.usage else {},
        "prompt": run.prompt,
        "exit_code": code if code >= 0 else None,
        "signal": signal.Signals(-code).name if code < 0 else None,
        "stderr": err,
        "api_requests": len(session.api.requests) - before,
        "served": session.api.served.since(served),
        "done": done,
    }
    session.total = dialogue.terminal.usage_total if dialogue.terminal else None
    target.mkdir(parents=True, exist_ok=True)
    stdout = session.stable(out)
    (target / f"{name}.jsonl").write_text(stdout, encoding="utf-8", newline="")
    (target / f"{name}.meta.json").write_text(session.stable(json.dumps(meta, indent=1, ensure_ascii=False)) + "\n")
    return f"{kind}/{name}: exit {code}, {stdout.count(chr(10))} lines, {len(stdout)} characters"


def _launch(request: LaunchRequest) -> dict[str, Any]:
    names = ("native_session_id", "resume", "cwd", "model", "permission_mode", "system_prompt", "mcp_servers", "tools")
    told = {name: value for name in names if (value := getattr(request, name)) not in (None, ())}
    return told | {
        name: value for name in ("live", "later", "prompt_id", "command_prompt") if (value := getattr(request, name))
    }


def _drain(pipe: IO[bytes], into: list[bytes]) -> None:
    into.extend(pipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="NAME or KIND/NAME; default: all")
    parser.add_argument("--to", type=Path, default=RECORDINGS)
    options = parser.parse_args()
    wanted = set(options.scenario)
    chosen = [
        (kind, scenario)
        for (kind, name), scenario in SCENARIOS.items()
        if scenario.recorded and (not wanted or wanted & {name, kind, f"{kind}/{name}"})
    ]
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda one: record(*one, options.to), chosen):
            print("\n".join(lines), flush=True)
    print(f"{len(chosen)} scenarios in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    os.umask(0o077)
    main()

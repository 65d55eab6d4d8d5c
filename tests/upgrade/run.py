"""`make upgrade`: turns that old code began go on under new code. Exit 1 if an event is lost, doubled or changed.

    FROM=v0.1.0 python -m tests.upgrade.run

The lane takes the package of the revision `FROM` (default: origin/main, else HEAD) out of git, serves with that package, and
opens sessions in every state: turns that stream, a live process at rest and one at work, an open approval, a queue, a
finished session. Then it kills the old daemon with SIGKILL and serves the same state directory with the code of the checkout.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 120.0
CHUNKS = 400

STREAM = f"@stream {CHUNKS} 16 0.02"
ASK = '@run Bash {"command": "echo approved"}'
# label -> mode, prompts before the kill, prompts that must have ended before the kill
SESSIONS: dict[str, tuple[str, list[str], int]] = {
    "finished": ("one-shot", ["Hello.", "Hello again."], 2),
    "streaming": ("one-shot", ["Hello.", STREAM], 1),
    "queued": ("one-shot", [STREAM, "Second.", "Third."], 0),
    "live at rest": ("live", ["Hello.", "Hello again."], 2),
    "live streaming": ("live", ["Hello.", STREAM], 1),
    "live with an approval": ("live", [ASK], 0),
}


class Daemon:
    """Daemon with the package of one tree, on a state directory and a socket of its own."""

    def __init__(self, tree: Path, place: Path) -> None:
        self.socket = place / "clisup.sock"
        config = place / "config.toml"
        config.write_text(f'[daemon]\nsocket = "{self.socket}"\nstate_dir = "{place / "state"}"\n')
        env = {key: value for key, value in os.environ.items() if not key.startswith("CLISUP_")}
        self._log = (place / "daemon.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clisup", "serve", "--config", str(config)],
            cwd=tree,
            env={**env, "PYTHONPATH": str(tree)},
            stdout=self._log,
            stderr=self._log,
        )
        wait_until(self._answers, "the daemon serves")

    def call(self, method: str, **params: Any) -> Any:
        """Send one request on a connection of its own, and return its result."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(BOUND_S)
            link.connect(str(self.socket))
            link.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
            with link.makefile("rb") as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def events(self, session: str) -> list[dict[str, Any]]:
        """Return all events of a session in order."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.call("session/events", session_id=session, after_seq=len(found), limit=1000)
            found += page["events"]
            if page["eof"]:
                return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        with suppress(OSError, RuntimeError):
            self.call("daemon/shutdown", mode="kill")
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(BOUND_S)
        self.process.kill()
        self._log.close()

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the daemon has ended with exit code {self.process.returncode}, see {self._log.name}")
        with suppress(OSError):
            return bool(self.call("ping"))
        return False


def wait_until(condition: Any, what: str) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {BOUND_S:.0f} s: {what}")
        time.sleep(0.05)


def main() -> int:
    revision = os.environ.get("FROM") or default_revision()
    scratch = Path(tempfile.mkdtemp(prefix="clisup-upgrade-"))
    try:
        old = scratch / "old"
        extract(revision, old)
        place = scratch / "place"
        place.mkdir(mode=0o700)
        return upgrade(revision, old, place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def default_revision() -> str:
    known = subprocess.run(["git", "rev-parse", "-q", "--verify", "origin/main"], cwd=ROOT, capture_output=True)
    return "origin/main" if known.returncode == 0 else "HEAD"


def extract(revision: str, tree: Path) -> None:
    """Write the package of a revision below `tree`."""
    archive = subprocess.run(
        ["git", "archive", revision, "clisup", "scrub_lists", "pyproject.toml"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tree, filter="data")


def upgrade(revision: str, old: Path, place: Path) -> int:
    before = Daemon(old, place)
    seen: dict[str, list[dict[str, Any]]] = {}
    try:
        ids = {label: begin(before, label, place) for label in SESSIONS}
        time.sleep(1.0)  # into the middle of the streams
        seen = {label: before.events(session) for label, session in ids.items()}
        before.kill()
        after = Daemon(ROOT, place)
    except BaseException:
        before.stop()
        print((place / "daemon.log").read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    try:
        faults = [fault for label, session in ids.items() for fault in finish(after, label, session, seen[label])]
        total = sum(len(after.events(session)) for session in ids.values())
    finally:
        after.stop()
    running = sum(1 for events in seen.values() if unfinished(events))
    print(
        f"{revision} -> checkout: {len(ids)} sessions, {running} with turns at work, {total} events, {len(faults)} faults"
    )
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


def begin(daemon: Daemon, label: str, place: Path) -> str:
    mode, prompts, ended = SESSIONS[label]
    session: str = daemon.call("session/new", backend="demo", cwd=str(place), mode=mode)["session_id"]
    for number, prompt in enumerate(prompts):
        daemon.call("session/prompt", session_id=session, prompt=prompt, wait=number < ended)
    if ended < len(prompts):
        word = "approval_requested" if ASK in prompts else "content_delta"
        wait_until(lambda: any(e["type"] == word for e in unfinished(daemon.events(session))), f"{label}: {word}")
    return session


def unfinished(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events after the last end of a turn."""
    ends = [index for index, event in enumerate(events) if event["type"] == "turn_completed"]
    return events[ends[-1] + 1 :] if ends else events


def finish(daemon: Daemon, label: str, session: str, seen: list[dict[str, Any]]) -> list[str]:
    """Let the turns of a session end, prompt once more, and return the faults."""
    for approval in daemon.call("approval/list", session_id=session)["approvals"]:
        daemon.call("approval/respond", approval_id=approval["approval_id"], session_id=session, decision="allow")
    last = daemon.call("session/prompt", session_id=session, prompt="Last.", wait=True)
    events = daemon.events(session)
    faults = []
    if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
        faults.append(f"{label}: seqs have gaps or stand twice")
    if events[: len(seen)] != seen:
        faults.append(f"{label}: an event of before the upgrade has changed")
    outcomes = [event["outcome"] for event in events if event["type"] == "turn_completed"]
    expected = len(SESSIONS[label][1]) + 1
    if outcomes != ["completed"] * expected:
        faults.append(f"{label}: outcomes {outcomes}, and not {expected} times completed")
    if last["text"] != "You said: Last.":
        faults.append(f"{label}: the last answer is {last['text']!r}")
    expected_chunks = [f"{number:06d}" for number in range(CHUNKS)] if STREAM in SESSIONS[label][1] else []
    chunks = re.findall(r"chunk (\d{6})", text_of(events))
    if chunks != expected_chunks:
        faults.append(
            f"{label}: {len(chunks)} chunks, {len(set(chunks))} of them different, not {len(expected_chunks)}"
        )
    return faults


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "content_delta" and event["kind"] == "text")


if __name__ == "__main__":
    sys.exit(main())

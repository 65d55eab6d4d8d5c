"""`make upgrade`: turns that old code began go on under new code. Exit 1 if an event is lost, doubled or changed.

    FROM=v0.1.0 python -m tests.upgrade.run

The lane takes the package of the revision `FROM` (default: origin/main, else HEAD) out of git, serves with that package, and
opens sessions in every state: turns that stream, a live process at rest and one at work, an open approval, a queue, a
finished session. Then it kills the old daemon with SIGKILL and serves the same state directory with the code of the checkout.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from harness import Harness, until
from session_probe import SessionProbe

ROOT = Path(__file__).resolve().parents[2]
CHUNKS = 400
STREAM = f"@stream {CHUNKS} 16 0.02"
ASK = '@run Bash {"command": "echo approved"}'
# label -> mode, prompts before the kill, prompts that have ended before the kill
SESSIONS: dict[str, tuple[str, list[str], int]] = {
    "finished": ("one-shot", ["Hello.", "Hello again."], 2),
    "streaming": ("one-shot", ["Hello.", STREAM], 1),
    "queued": ("one-shot", [STREAM, "Second.", "Third."], 0),
    "live at rest": ("live", ["Hello.", "Hello again."], 2),
    "live streaming": ("live", ["Hello.", STREAM], 1),
    "live with an approval": ("live", [ASK], 0),
}


class TwoCodes(Harness):
    """Daemon of one state directory, whose interpreter decides which code serves."""

    def __init__(self) -> None:
        super().__init__(cold=True)
        self.python = sys.executable

    def argv(self) -> list[str]:
        return [self.python, "-P", "-m", "clisup", *self.arguments()]


def main() -> int:
    revision = os.environ.get("FROM") or default_revision()
    scratch = Path(tempfile.mkdtemp(prefix="clisup-upgrade-"))
    daemon = TwoCodes()
    try:
        return upgrade(revision, interpreter_of(revision, scratch), daemon)
    finally:
        daemon.close()
        shutil.rmtree(scratch, ignore_errors=True)


def default_revision() -> str:
    known = subprocess.run(["git", "rev-parse", "-q", "--verify", "origin/main"], cwd=ROOT, capture_output=True)
    return "origin/main" if known.returncode == 0 else "HEAD"


def interpreter_of(revision: str, scratch: Path) -> str:
    """Return a Python that imports the package of this revision, and the other packages that it was pinned to.

    A daemon executes itself anew with a clean environment, so a variable such as PYTHONPATH would not reach the process
    that serves.
    """
    archive = subprocess.run(
        ["git", "archive", revision, "clisup", "scrub_lists", "requirements"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    tree = scratch / "old"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tree, filter="data")
    venv.create(scratch / "venv", symlinks=True, with_pip=True)
    site = next((scratch / "venv" / "lib").glob("python3*/site-packages"))
    (site / "upgrade.pth").write_text(f"{tree}\n")
    python = str(scratch / "venv" / "bin" / "python")
    pins = str(tree / "requirements" / "runtime.txt")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", pins], check=True)
    words = [python, "-P", "-c", "import clisup; print(clisup.__file__)"]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    assert Path(found).is_relative_to(tree), f"{found} is not the code of {revision}"
    return python


def upgrade(revision: str, old_python: str, daemon: TwoCodes) -> int:
    new_python, daemon.python = daemon.python, old_python
    daemon.start()
    sessions = {label: begin(daemon, label) for label in SESSIONS}
    seen = {label: session.events() for label, session in sessions.items()}
    running = sum(1 for events in seen.values() if unfinished(events))
    daemon.kill()
    daemon.python = new_python
    daemon.start()
    faults = [fault for label, session in sessions.items() for fault in finish(label, session, seen[label])]
    total = sum(len(session.events()) for session in sessions.values())
    print(f"{revision} -> checkout: {len(sessions)} sessions, {running} with turns at work, {total} events")
    print(*(f"  {fault}" for fault in faults), f"faults {len(faults)}", sep="\n")
    return 1 if faults else 0


def begin(daemon: TwoCodes, label: str) -> SessionProbe:
    mode, prompts, ended = SESSIONS[label]
    session = daemon.new(mode=mode)
    for number, prompt in enumerate(prompts):
        (session.ask if number < ended else session.prompt)(prompt)
    if ended < len(prompts):
        word = "approval_requested" if ASK in prompts else "content_delta"
        until(lambda: any(event["type"] == word for event in unfinished(session.events())), f"{label}: no {word}")
    return session


def unfinished(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events after the last end of a turn."""
    ends = [index for index, event in enumerate(events) if event["type"] == "turn_completed"]
    return events[ends[-1] + 1 :] if ends else events


def finish(label: str, session: SessionProbe, seen: list[dict[str, Any]]) -> list[str]:
    """Let the turns of a session end, prompt once more, and return the faults."""
    for approval in session.daemon.call("approval/list", session_id=session.id)["approvals"]:
        session.daemon.call(
            "approval/respond", approval_id=approval["approval_id"], session_id=session.id, decision="allow"
        )
    last = session.ask("Last.")
    events = session.events()  # asserts that no seq is missing or stands twice
    prompts = SESSIONS[label][1]
    faults = []
    if events[: len(seen)] != seen:
        faults.append(f"{label}: an event of before the upgrade has changed")
    outcomes = [event["outcome"] for event in events if event["type"] == "turn_completed"]
    if outcomes != ["completed"] * (len(prompts) + 1):
        faults.append(f"{label}: outcomes {outcomes}, and not {len(prompts) + 1} times completed")
    if last["text"] != "You said: Last.":
        faults.append(f"{label}: the last answer is {last['text']!r}")
    if (chunks := session.chunks()) != [*range(CHUNKS if STREAM in prompts else 0)]:
        faults.append(f"{label}: {len(chunks)} chunks, {len(set(chunks))} of them different")
    return faults


if __name__ == "__main__":
    sys.exit(main())

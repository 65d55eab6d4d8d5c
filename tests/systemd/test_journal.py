"""The real journald, in a mount namespace of its own: what the daemon logs is found by session, and big entries come whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

JOURNALD = "/usr/lib/systemd/systemd-journald"
LIMIT_S = 120
SCRIPT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
mount -t tmpfs tmpfs /var/log
{journald} 2>/dev/null &
for i in $(seq 200); do [ -S /run/systemd/journal/socket ] && break; sleep 0.05; done
cd {root}
{start} serve {flags} 2>{root}/stderr &
DAEMON=$!
for i in $(seq 400); do [ -S {root}/s ] && break; sleep 0.05; done
{python} -P -m clisup run -b demo -C / '@env JOURNAL_STREAM' >{root}/answer 2>/dev/null
{python} -c '{big}'
{python} -P -m clisup doctor demo --json >{root}/doctor || true
{python} -P -m clisup stop >/dev/null 2>&1
wait $DAEMON
journalctl --sync
journalctl --no-pager -o json -t clisup >{root}/all
journalctl --no-pager -o json CLISUP_EVENT='turn ended' >{root}/ended
journalctl --no-pager -o json --all _COMM={comm} CLISUP_EVENT='big' >{root}/big
"""
START = """#!/bin/sh
export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)
exec {python} -P -m clisup "$@"
"""
BIG = (
    "from clisup.host.systemd.journal import JournalSocket as J;"
    "from clisup.host.systemd.journal import *;"
    'assert J().send(encode_entry(entry_of({"event": "big", "text": "x" * 30_000})))'
)


@pytest.fixture
def root() -> Iterator[Path]:
    if os.geteuid() != 0 or not os.access(JOURNALD, os.X_OK) or shutil.which("systemd-cat") is None:
        pytest.skip("only root can give journald a namespace, and it has to be installed")
    path = Path(tempfile.mkdtemp(prefix="cj", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_journalctl_finds_the_lines_of_a_session(root: Path) -> None:
    python = sys.executable
    # systemd-cat connects stderr with the journal; that JOURNAL_STREAM says so is systemd's part of a service's start.
    script = SCRIPT.format(
        journald=JOURNALD, root=root, python=python, big=BIG, comm=Path(python).name[:15],
        start=f"systemd-cat -t other {root}/start", flags=f"--socket {root}/s --state-dir {root}/st",
    )  # fmt: skip
    (root / "start").write_text(START.format(python=python))
    (root / "start").chmod(0o700)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "LANG": "C.UTF-8",
        "CLISUP_SOCKET": f"{root}/s",
        "PYTHONPATH": os.getcwd(),
    }
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if "unshare" in done.stderr and done.returncode:
        pytest.skip(f"namespaces are refused: {done.stderr}")
    assert done.returncode == 0, done.stderr
    found = lines(root / "all")
    opened = next(line for line in found if line["CLISUP_EVENT"] == "session opened")
    of_session = [line["CLISUP_EVENT"] for line in found if line.get("CLISUP_SESSION") == opened["CLISUP_SESSION"]]
    assert of_session == ["session opened", "turn started", "process started", "process exited", "turn ended"]
    (ended,) = lines(root / "ended")
    assert ended["CLISUP_SESSION"] == opened["CLISUP_SESSION"] and ended["CLISUP_OUTCOME"] == "completed"
    assert ended["PRIORITY"] == "6" and len(ended["MESSAGE_ID"]) == 32 and ended["_TRANSPORT"] == "journal"
    told = [line["CLISUP_EVENT"] for line in found]
    assert told[0] == "ready" and told[-2:] == ["stopping", "stopped"]
    assert "JOURNAL_STREAM: absent" in (root / "answer").read_text(), "no CLI learns of it"
    log = next(finding for finding in json.loads((root / "doctor").read_text()) if finding["check"] == "log")
    assert log["status"] == "ok" and "journal" in log["detail"]
    (big,) = lines(root / "big")
    assert big["CLISUP_TEXT"] == "x" * 30_000

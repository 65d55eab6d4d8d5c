"""Each file of the state directory becomes something else: under a running daemon, then before the next one starts."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.attack.ground import Box, alive, ground_of, wait_until
from tests.attack.inside import SPOILERS
from tests.attack.model import Attack

__all__ = ["ATTACKS", "ground"]

ground = ground_of
MEMORY_MB = 300.0
"""Most memory of a daemon that has met such a file."""
ANSWER_S = 5.0
"""For one answer of the daemon. A refusal is an answer."""
START_S = 15.0
SESSION = ("session.json", "journal/000000000001.jsonl", "private/system_prompt.txt", "private/tools.json",
           "private/secrets.json", "private/mcp.json", "prompts/t2.json", "asked/x", "runs/1/intent.json", "runs/1/start.json",
           "runs/1/exit.json", "runs/1/checkpoint", "runs/1/out.spool", "runs/1/err.spool", "runs/1/keeper.lock", "runs/1/ctl.sock",
           "runs/1/said/x", "runs/1/blobs/x")  # fmt: skip
TOP = ("accounts.json", "drift.json", "env-names/demo.json", "cursors/attack.jsonl", "cursors/notify~a.jsonl",
       "tracing/cursors/spans.jsonl", "worktrees/00000000-0000-4000-8000-000000000000.json", "trash/x", "start.lock",
       "sessions/00000000-0000-4000-8000-000000000000/session.json", "sessions/not-a-session")  # fmt: skip
"""Files beside those of a session, made where there are none."""
USES = ("get", "events", "context_usage", "fork", "interrupt", "close")
SHORT_KINDS = ("a FIFO", "nested JSON")


def spoilt(kind: str, outer: Box) -> str | None:
    """Spoil each file of a session of its own, and use the session. Then start the next daemon on all of them."""
    with Box(outer.chance) as box:
        neighbour = box.session()
        neighbour.ask("I stay")
        before, secret = neighbour.events(), box.daemon.root / "secret"
        secret.write_text('{"text": "SECRET"}\n' * 50)
        bad: list[str] = []
        spoilt_dirs: dict[str, Path] = {}
        for name in SESSION:
            victim = _victim(box)
            _spoil(victim.dir / name, kind, secret)
            spoilt_dirs[name] = victim.dir
            if fault := _used(box, victim.id):
                bad.append(f"{name}: {fault}")
                del spoilt_dirs[name]
                _again(box, victim.dir, spoilt_dirs)
        for path in [box.daemon.state / name for name in TOP] + list(box.daemon.root.glob("home/**/*.jsonl")):
            if neighbour.id not in path.name:
                _spoil(path, kind, secret)
        bad += _next(box, spoilt_dirs)
        if not bad and (fault := box.neighbour_works()):
            bad.append(fault)
        if not bad and neighbour.events()[: len(before)] != before:
            bad.append("the history of a neighbour changed")
    return "; ".join(bad) or None


def _victim(box: Box) -> Any:
    """Return a session with an answer, a running turn that asks, and a prompt in its queue."""
    session = box.session(mode="live", system_prompt="Be kind.")
    session.prompt('@ask Bash {"command": "echo x"}')
    session.await_event("approval_requested")
    session.prompt("later")
    return session


def _spoil(path: Path, kind: str, secret: Path) -> None:
    """Do it as any process of the user can. A part of the state that is not there makes no difference."""
    with suppress(OSError):
        SPOILERS[kind](str(path), str(secret))


def _used(box: Box, session_id: str) -> str:
    """Ask for all that reads the session. Return why the daemon is harmed, or ""."""
    for use in USES:
        if box.ask_quickly(f"session/{use}", ANSWER_S, session_id=session_id) is None and (fault := _harm(box)):
            return f"{fault} after {use}"
    return _harm(box)


def _harm(box: Box) -> str:
    process = box.daemon.process
    if process is None or process.poll() is not None:
        return "the daemon ended"
    if not alive(box.daemon.socket, ANSWER_S):
        return "the daemon hangs"
    peak = _peak_mb(box.daemon.pid)
    return f"the daemon took {peak:.0f} MB" if peak > MEMORY_MB else ""


def _again(box: Box, spoilt_dir: Path, others: dict[str, Path]) -> None:
    """Start a daemon without this session. The others are put aside: a daemon may not start with them."""
    box.daemon.kill()
    shutil.rmtree(spoilt_dir, ignore_errors=True)
    for path in others.values():
        if path.exists():
            os.rename(path, _aside(box) / path.name)
    _start(box)


def _aside(box: Box) -> Path:
    (found := box.daemon.root / "aside").mkdir(exist_ok=True)
    return found


def _start(box: Box) -> bool:
    box.daemon.process = box.daemon.launch()
    return wait_until(lambda: alive(box.daemon.socket, ANSWER_S) or box.daemon.process.poll() is not None, START_S)


def _next(box: Box, spoilt_dirs: dict[str, Path]) -> list[str]:
    """Start the next daemon. If it is harmed, find the files that do it."""
    box.daemon.kill()
    for path in spoilt_dirs.values():
        if not path.exists():
            os.rename(_aside(box) / path.name, path)
    _start(box)
    if not (fault := _harm(box)):
        return []
    bad = []
    box.daemon.kill()
    for path in spoilt_dirs.values():
        os.rename(path, _aside(box) / path.name)
    for name, path in spoilt_dirs.items():
        os.rename(_aside(box) / path.name, path)
        _start(box)
        if one := _harm(box):
            bad.append(f"{name}, next daemon: {one}")
        box.daemon.kill()
        shutil.rmtree(path, ignore_errors=True)
    _start(box)
    return bad or [f"the next daemon: {fault} ({box.daemon.log.read_text()[-200:]})"]


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


ATTACKS = tuple(
    Attack("T7", f"each file becomes {kind}", partial(spoilt, kind), kind in SHORT_KINDS) for kind in SPOILERS
)

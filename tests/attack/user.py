"""Another user of the machine: every process of this part is either the daemon's user or this one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.attack.cell import confined
from tests.attack.ground import INSIDE, Box, running_with
from tests.attack.model import Attack, NotPlayed

__all__ = ["ATTACKS", "ground"]

STRANGER, VICTIM = 54_321, 54_322
SECRET = "my word is plum"


@contextmanager
def ground(chance: random.Random) -> Iterator[Box]:
    """A daemon of root, with a secret in a session."""
    with Box(chance) as box:
        yield box


def _as_stranger(argv: list[str]) -> str:
    """Run a program as the other user. Return what it prints."""
    if not confined():
        raise NotPlayed("only root can be another user")
    done = subprocess.run(argv, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, cwd="/", timeout=30,
                          check=False)  # fmt: skip
    return done.stdout


def connects(box: Box) -> str | None:
    """The other user connects, also where the directory is open."""
    box.ready()
    for directory in (box.daemon.root, Path(box.daemon.socket)):
        mode = directory.stat().st_mode
        directory.chmod(0o777)
        script = f"import runpy, sys; m = runpy.run_path({str(INSIDE)!r}); print(m['ask']({box.daemon.socket!r}, dict(method='session/list', params=dict())))"
        try:
            if said_ := _as_stranger([sys.executable, "-c", script]).strip():
                return f"served: {said_}"
        finally:
            directory.chmod(mode & 0o7777)
    return None


def reads(box: Box) -> str | None:
    """The other user reads every file of the state directory and the home."""
    session = box.session()
    session.ask(SECRET)
    found = _as_stranger(
        ["grep", "-rlsI", "-D", "skip", SECRET, str(box.daemon.state), str(box.daemon.root / "home"), "/dev/shm"]
    )
    mine = [line for line in found.splitlines() if str(box.proofs) not in line]
    return f"read {mine[0]}" if mine else None


def _foreign_directory(state: Path) -> None:
    state.mkdir(parents=True)
    os.chown(state, STRANGER, STRANGER)


def _foreign_parent(state: Path) -> None:
    _foreign_directory(state.parent)
    state.mkdir()


def _open_directory(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o777)


def _foreign_file(state: Path) -> None:
    state.mkdir(parents=True)
    (state / "accounts.json").write_text("{}")
    os.chown(state / "accounts.json", STRANGER, STRANGER)


def _link(state: Path) -> None:
    other = state.parent / "other"
    _foreign_directory(other)
    state.symlink_to(other)


PLANTS: dict[str, Callable[[Path], None]] = {
    "a directory of the other user": _foreign_directory,
    "a parent of the other user": _foreign_parent,
    "a directory where all may write": _open_directory,
    "a file of the other user": _foreign_file,
    "a link to a directory of the other user": _link,
}


def planted(kind: str, box: Box) -> str | None:
    """The other user made the state directory, or a part of it, before the daemon starts."""
    if not confined():
        raise NotPlayed("only root can give a file away")
    from harness import Harness

    daemon = Harness()
    try:
        daemon.state = daemon.root / "parent" / "state"
        daemon.state.parent.mkdir()
        if kind == "a parent of the other user":
            daemon.state.parent.rmdir()
        PLANTS[kind](daemon.state)
        daemon.process = daemon.launch()
        daemon.process.wait(30)
        return None if daemon.process.returncode else "the daemon started and stopped"
    except subprocess.TimeoutExpired:
        return "the daemon serves from there"
    finally:
        assert daemon.process is not None
        daemon.process.kill()
        daemon.state = daemon.root / "none"
        daemon.faults_expected = True
        daemon.close()


def false_daemon(box: Box) -> str | None:
    """The other user listens where a client of the user looks."""
    if not confined():
        raise NotPlayed("only root can be another user")
    place = Path("/tmp") / f"open-{os.getpid()}"
    place.mkdir()
    place.chmod(0o777)
    socket, got, home = place / "s", place / "got", place / "home"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    script = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); import os; os.chmod(sys.argv[1], 0o777); s.listen(); print('up', flush=True)\n"
        "c, _ = s.accept(); data = c.recv(4096); open(sys.argv[2], 'wb').write(data)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, socket, got],
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "CLISUP_SOCKET": str(socket)}
        words = [sys.executable, "-m", "clisup", "run", "--no-start", "-b", "demo", SECRET]
        rights: dict[str, Any] = {"user": VICTIM, "group": VICTIM, "extra_groups": []}
        subprocess.run(words, env=env, capture_output=True, timeout=60, check=False, cwd="/", **rights)
        other.kill()
    text = got.read_text() if got.exists() else ""
    return f"the other user's socket got {text[:60]!r}" if text else None


def in_argv(box: Box) -> str | None:
    """The other user looks at all command lines."""
    session = box.session(
        system_prompt=SECRET, mcp_config={"mcpServers": {"x": {"command": "true", "env": {"K": SECRET}}}}
    )
    session.prompt(f"@text {SECRET}\n@sleep 3")
    session.cli()
    text = _as_stranger(["sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/comm 2>/dev/null | tr '\\0' ' '"])
    environ = _as_stranger(["sh", "-c", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' ' '"])
    return "the prompt is in a command line" if SECRET in text + environ else None


def uses_up(box: Box) -> str | None:
    """The other user takes processor time, which nobody keeps for the daemon."""
    if not confined():
        raise NotPlayed("only root can be another user")
    with subprocess.Popen(["sh", "-c", "while :; do :; done"], user=STRANGER, group=STRANGER, extra_groups=[]) as other:
        running: Any = running_with("while :")
        other.kill()
    return "a process of the other user took a core" if running else None


ATTACKS = (
    Attack("U1", "connect to the socket", connects, True),
    Attack("U1", "read files", reads, True),
    *(Attack("U2", f"plant {kind}", partial(planted, kind), kind == "a directory of the other user") for kind in PLANTS),
    Attack("U2", "listen in the daemon's place", false_daemon),
    Attack("U3", "look at command lines and variables", in_argv, True),
    Attack("U4", "take a core", uses_up),
)  # fmt: skip

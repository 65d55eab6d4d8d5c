"""Ground of the parts with a daemon: sessions whose tools are hostile, and the proofs of what the tools reached."""

from __future__ import annotations

import itertools
import json
import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

sys.path[:0] = [
    str(Path(__file__).parents[1] / name) for name in ("daemon", "web", "doors/gateway", "doors/acp", "doors/mcp")
]
from harness import Harness, children_of, until  # noqa: E402 - the tests' harness is no package
from session_probe import SessionProbe  # noqa: E402 - the tests' harness is no package
from wire import Hangup, Wire  # noqa: E402 - the tests' harness is no package

from clisup.errors import ClisupError  # noqa: E402 - the tests' harness is no package

__all__ = ["BOUND_S", "INSIDE", "Box", "children_of", "ground_of", "until"]

INSIDE = Path(__file__).with_name("inside.py")
BOUND_S = 30.0
QUICK = {"daemon": {"log_level": "info", "keeper_zygote": True}}


class Box:
    """One daemon, which is there again after each attack."""

    def __init__(self, chance: random.Random, **tables: Any) -> None:
        self.chance = chance
        self.daemon = Harness(**tables)
        self.daemon.faults_expected = True
        self.proofs = self.daemon.root / "proofs"
        self.proofs.mkdir()
        self._numbers = itertools.count(1)
        self.daemon.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """End it at once: a daemon that an attack has harmed is not asked to stop."""
        self.daemon.closed = True
        with suppress(Exception):
            self.daemon.kill()
        self.daemon._end_everything()
        shutil.rmtree(self.daemon.root, ignore_errors=True)

    def proof(self, name: str = "proof") -> Path:
        """Return a new place for a proof."""
        return self.proofs / f"{next(self._numbers)}-{name}"

    def alive(self) -> bool:
        """Tell whether the daemon serves. It gets a moment, because it may be busy."""
        return alive(self.daemon.socket, BOUND_S)

    def ask_quickly(self, method: str, seconds: float, **params: Any) -> Any:
        """Return the answer on a connection of its own, or None: a refusal, or silence for so long."""
        with suppress(OSError, Hangup, AssertionError, ClisupError), Wire(self.daemon.socket) as wire:
            wire.socket.settimeout(seconds)
            return wire.call(method, **params)
        return None

    def ready(self) -> Harness:
        """Return the daemon, started again if an attack has ended it."""
        process = self.daemon.process
        if process is None or process.poll() is not None or not self.alive():
            self.daemon.kill()
            self.daemon.start()
        return self.daemon

    # -- tools

    def command(self, action: str, **words: Any) -> str:
        """Return the shell command of a tool that does this."""
        file = self.proof("words.json")
        file.write_text(json.dumps(words, default=str))
        return shlex.join([sys.executable, "-P", str(INSIDE), action, str(file)])

    def session(self, **params: Any) -> SessionProbe:
        """Open a session of the demo backend."""
        return self.ready().new(**params)

    def tool(self, action: str, session: SessionProbe | None = None, **words: Any) -> SessionProbe:
        """Let a tool of a session do this, to the end of the turn. Return the session."""
        session, command = session or self.session(), self.command(action, **words)
        session.ask(f"@bash {command}")
        assert began(command), f"the tool did not run: {session.events('tool_result')[-1:]}"
        return session

    def begin(self, action: str, session: SessionProbe | None = None, **words: Any) -> SessionProbe:
        """Let a tool of a session do this, and do not wait."""
        session = session or self.session()
        session.prompt(f"@bash {self.command(action, **words)}\n@stall")
        return session

    def successor(self) -> Harness:
        """Kill the daemon, and start the next one on the same state."""
        self.daemon.kill()
        self.daemon.start()
        return self.daemon

    # -- what was reached

    def neighbour_works(self) -> str:
        """Return why another session gets no turn, or ""."""
        try:
            end = self.session().ask("hello")
        except (ClisupError, Hangup, OSError, AssertionError) as error:
            return f"a new session gets no turn: {error!r}"[:300]
        return "" if end["outcome"] == "completed" else f"a new session's turn ends as {end['outcome']}"

    def victims(self, session: SessionProbe) -> dict[str, int]:
        """Return the pids around a session whose CLI runs."""
        return {"cli": session.cli(), "keeper": session.keeper(), "daemon": self.daemon.pid,
                "zygote": self.daemon.keeper_zygote() or 0}  # fmt: skip


def alive(path: str, seconds: float) -> bool:
    """Tell whether a daemon answers at this socket."""
    with suppress(OSError, Hangup, AssertionError, ClisupError), Wire(path) as wire:
        wire.socket.settimeout(seconds)
        return wire.call("ping") is not None
    return False


def began(command: str) -> bool:
    """Tell whether the tool with this command has begun."""
    return os.path.exists(command.split()[-1] + ".began")


def said(path: Path, patience: float = 0.0) -> str | None:
    """Return the text of a proof, or None. A proof that another process writes gets some time."""
    end = time.monotonic() + patience
    while not (path.exists() and path.stat().st_size):
        if time.monotonic() >= end:
            return None
        time.sleep(0.02)
    return path.read_text(errors="replace")[:300]


def wait_until(what: Callable[[], Any], patience: float = BOUND_S) -> bool:
    """Wait for a condition, and tell whether it came."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def gone(pid: int) -> bool:
    """Tell whether a process is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def running_with(words: str) -> list[int]:
    """Return the processes of this user whose command line has these words."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if words.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and int(name) != os.getpid():
                found.append(int(name))
    return found


@contextmanager
def ground_of(chance: random.Random, **tables: Any) -> Iterator[Box]:
    """A box for a part."""
    with Box(chance, **tables) as box:
        yield box

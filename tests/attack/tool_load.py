"""A hostile tool that takes processes, descriptors, output and disk."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.attack import cell
from tests.attack.ground import Box, ground_of, running_with, said, until, wait_until
from tests.attack.model import Attack, NotPlayed

__all__ = ["ATTACKS", "ground"]

ground = ground_of
BOMB, BOMB_S = 300, 25.0
"""Processes of the fork bomb: below the limit of the cell, and few enough for a machine without one."""
AFTER_S = 15.0


def bomb(box: Box) -> str | None:
    """A fork bomb in sessions of its own. After the close nothing of it lives, and other sessions work."""
    proof = box.proof()
    command = box.command("bomb", most=BOMB, proof=proof, seconds=BOMB_S)
    mark = command.split()[-1]
    session = box.session()
    session.prompt(f"@bash {command}\n@stall")
    until(lambda: said(proof), "the bomb did not start")
    session.call("close")
    if not wait_until(lambda: not running_with(mark), AFTER_S):
        return f"{len(running_with(mark))} processes live {AFTER_S:.0f} s after the close"
    return box.neighbour_works() or None


SURVIVORS = ("setsid", "double-fork", "clean-env", "refork", "respawn", "ignores-term", "many")


def survives(kind: str, box: Box) -> str | None:
    """A child of every kind that wants to stay. `make zoo` tries them by the thousand."""
    before = set(_mine())
    session = box.session()
    with suppress(Exception):
        session.ask(f"@orphan {kind} 120\nhello", timeout_s=20)
    session.call("close")
    return _stays(before)


def recorded(box: Box) -> str | None:
    """A tool writes the exit record of its run, which says that the run keeps its processes, and kills its keeper."""
    before, session, proof = set(_mine()), box.session(), box.proof()
    record = {"reason": "exit", "exit_code": 0, "kept": [{"pid": 1, "comm": "init"}]}
    stay = f"setsid sh -c 'echo up > {proof}; exec sleep 120' </dev/null >/dev/null 2>&1 &"
    session.prompt(f"@bash echo '{json.dumps(record)}' > {session.dir}/runs/1/exit.json\n@bash {stay}\n@stall")
    until(lambda: said(proof), "the child did not start")
    os.kill(session.get()["keeper_pid"], signal.SIGKILL)
    return _stays(before)


def _stays(before: set[int]) -> str | None:
    """Return how many processes have come since and stay, or None."""
    left = lambda: [pid for pid in _mine() if pid not in before and "clisup" not in _name(pid)]  # noqa: E731
    return None if wait_until(lambda: not left(), AFTER_S) else f"{len(left())} processes of it live"


def _mine() -> list[int]:
    uid = os.getuid()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if os.stat(f"/proc/{name}").st_uid == uid and fields[0] not in "ZX":
                found.append(int(name))
    return found


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def crowded(box: Box) -> str | None:
    """As many processes as the user may have. Nothing is promised to other sessions meanwhile, only afterwards."""
    if not cell.inside() or os.geteuid() == 0:
        raise NotPlayed("only a user of a cell has a limit of processes to use up")
    proof = box.proof()
    session = box.session()
    session.prompt(f"@bash {box.command('bomb', most=cell.PROCESSES * 2, proof=proof, seconds=BOMB_S)}\n@stall")
    until(lambda: said(proof), "the bomb did not start")
    meanwhile = box.ask_quickly("session/new", 8, backend="demo", cwd="/tmp")
    end = meanwhile and box.ask_quickly(
        "session/prompt", 8, session_id=meanwhile["session_id"], prompt="hello", wait=True
    )
    with suppress(Exception):
        session.call("close")
    until(lambda: not box.neighbour_works(), "no session works after the bomb", AFTER_S * 2)
    return None if end and end["outcome"] == "completed" else "a turn of another session did not start meanwhile"


def descriptors(box: Box) -> str | None:
    """A tool opens all descriptors that a process may have. Others have theirs."""
    proof = box.proof()
    box.begin("descriptors", proof=proof)
    until(lambda: said(proof))
    return box.neighbour_works() or None


def flooded(box: Box) -> str | None:
    """A tool prints without an end. The turn ends at its limit of output, and others go on meanwhile."""
    session = box.session()
    turn = session.prompt("@bash yes $(head -c 4000 /dev/zero | tr '\\0' x) | head -c 300000000\ndone")
    fault = box.neighbour_works()
    with suppress(Exception):
        session.call("interrupt")
    session.end_of(turn)
    return fault or None


def filled(box: Box) -> str | None:
    """A tool fills the disk of the state directory. No event is lost, and all works again when there is room."""
    if not cell.inside():
        raise NotPlayed("no small file system here")
    with Box(box.chance) as small:
        small.daemon.kill()
        small.daemon.state = Path(cell.SMALL) / "state"
        small.daemon.start()
        keeper = small.session()
        keeper.ask("before")
        before = keeper.events()
        proof = small.proof()
        small.begin("fill", path=Path(cell.SMALL) / "full", size=64 << 20, proof=proof)
        until(lambda: said(proof), "the tool does not fill the disk")
        small.ask_quickly("session/prompt", 5, session_id=keeper.id, prompt="meanwhile", wait=True)
        if not small.alive():
            return "the daemon answers no more on a full disk"
        os.unlink(Path(cell.SMALL) / "full")
        until(lambda: not small.neighbour_works(), "no session works after there is room", AFTER_S * 2)
        if keeper.events()[: len(before)] != before:
            return "events are lost or changed"
        small.successor()
        return None if keeper.events()[: len(before)] == before else "the next daemon has lost events"


ATTACKS = (
    Attack("T9", f"a fork bomb of {BOMB}", bomb),
    *(Attack("T9", f"a child that stays: {kind}", lambda box, kind=kind: survives(kind, box), kind == "double-fork") for kind in SURVIVORS),
    Attack("T9", "an exit record of its own, and the keeper killed", recorded, short=True),
    Attack("T10", "all descriptors of a process", descriptors),
    Attack("T10", "output of 300 MB", flooded),
    Attack("T10", "fill the disk, and lose events of others", filled),
    Attack("T11", "as many processes as the user may have", crowded),
)  # fmt: skip

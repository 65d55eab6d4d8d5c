"""A hostile tool at the sockets of its user and at the processes of clisup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from tests.attack.ground import Box, began, gone, ground_of, running_with, said, until, wait_until
from tests.attack.model import Attack, NotPlayed

__all__ = ["ATTACKS", "ground"]

ground = ground_of
PATIENCE_S = 12.0
TRICKS: dict[str, tuple[str, ...]] = {
    "directly": (),
    "with the name of clisup": ("name of clisup",),
    "with raised limits": ("raised limits",),
    "undumpable": ("undumpable",),
    "with an empty environment": ("empty environment",),
    "after a double fork": ("double fork",),
    "after a double fork, with an empty environment": ("double fork", "empty environment"),
    "after its CLI was killed": ("double fork", "CLI killed"),
    "after its keeper was killed": ("double fork", "keeper killed"),
    "after its keeper and its CLI were killed, with an empty environment": (
        "double fork", "raised limits", "undumpable", "keeper killed", "CLI killed", "empty environment",
    ),
    "after the keepers' zygote was killed": ("double fork", "zygote killed"),
    "after the daemon was killed": ("double fork", "daemon killed"),
    "after keeper, CLI, zygote and daemon were killed, with an empty environment": (
        "double fork", "raised limits", "undumpable", "daemon killed", "zygote killed", "keeper killed", "CLI killed",
        "empty environment",
    ),
}  # fmt: skip
IN_SHORT = ("directly", "after a double fork, with an empty environment",
            "after keeper, CLI, zygote and daemon were killed, with an empty environment")  # fmt: skip
CLIENT = """
import socket, sys, time
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}' + bytes([10]))
sock.recv(4096)
print("up", flush=True)
time.sleep(60)
"""
HELPER = """
import os, sys, time, subprocess
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
subprocess.run(open(sys.argv[1]).read(), shell=True)
"""


def connect(how: tuple[str, ...], box: Box) -> str | None:
    """A tool connects, in every way of looking like another process."""
    session = box.session()
    session.prompt("@wait-file " + str(file := box.proof("go.sh")) + f"\n@bash sh {file}\n@stall")
    victims = box.victims(session)
    proof, served = box.proof(), box.proof("serves")
    dies = "daemon killed" in how
    command = box.command("connect", path=box.daemon.socket, proof=proof, how=how, victims=victims,
                          wait_for=served if dies else "")  # fmt: skip
    part = file.with_suffix(".part")
    part.write_text(command)
    part.rename(file)
    if dies:
        assert box.daemon.process is not None
        assert wait_until(lambda: gone(victims["daemon"])), "the tool could not kill the daemon"
        box.daemon.process.wait(PATIENCE_S)
        box.ready()
        served.write_text("the next one")
    assert wait_until(lambda: began(command)), "the tool did not run"
    wait_until(
        lambda: said(proof) or said(proof.with_name(proof.name + ".done")) or not running_with(command.split()[-1]),
        PATIENCE_S,
    )
    with suppress(Exception):
        box.ready().call("session/close", session_id=session.id)
    return said(proof)


def bridge(call: str, box: Box) -> str | None:
    """The tool has the token of its session's bridge."""
    session = box.session(tools=[{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}])
    token = json.loads((session.dir / "private" / "tools.json").read_text())["token"]
    proof, other = box.proof(), box.session()
    hello = {"method": "bridge/hello", "params": {"token": token}}
    then: dict[str, list[dict[str, Any]]] = {
        "its tool list": [hello],
        "session/list": [hello, {"method": "session/list", "params": {}}],
        "session/prompt of its own session": [
            hello, {"method": "session/prompt", "params": {"session_id": session.id, "prompt": "hello"}}],
        "a token of another session": [
            {"method": "bridge/hello", "params": {"token": f"{other.id}.{token.partition('.')[2]}"}}],
        "no hello": [{"method": "bridge/call", "params": {"call_id": "x", "name": "add", "input": {}}}],
    }  # fmt: skip
    box.tool("method", session, path=box.daemon.socket, proof=proof, requests=then[call])
    session.call("close")
    return said(proof)


def memory(box: Box) -> str | None:
    """The tool reads the processes that must hide what they know."""
    if os.geteuid() == 0:
        raise NotPlayed("nothing hides a process from root")
    box.daemon.kill()
    box.daemon.cold = True
    try:
        box.daemon.start()
        session = box.session(mode="live")
        session.ask("hello")
        pids = {name: pid for name, pid in box.victims(session).items() if name != "cli" and pid}
        proof = box.proof()
        box.tool("read_memory", pids=pids, proof=proof)
    finally:
        box.daemon.cold = False
    return said(proof)


def borrowed(box: Box) -> str | None:
    """The tool takes a connection out of a client of its user (pidfd_getfd)."""
    with subprocess.Popen([sys.executable, "-c", CLIENT, box.ready().socket], stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None and client.stdout.readline() == b"up\n"
            proof = box.proof()
            box.tool("borrow", pid=client.pid, proof=proof)
        finally:
            client.kill()
    return said(proof)


def of_command(box: Box) -> str | None:
    """The same with `clisup logs -f` of the user."""
    from commands import begin

    session = box.session()
    session.ask("hello")
    with begin(box.daemon, "logs", "-f", session.id) as client:
        try:
            assert client.stdout is not None and client.stdout.readline()
            proof = box.proof()
            box.tool("borrow", pid=client.pid, proof=proof)
        finally:
            client.kill()
    return said(proof)


def helped(box: Box) -> str | None:
    """A process outside of the tree runs what the tool writes, as cron does."""
    order, proof = box.proof("order"), box.proof()
    command = box.command("connect", path=box.daemon.socket, proof=proof, how=(), victims={})
    with subprocess.Popen([sys.executable, "-c", HELPER, str(order)], start_new_session=True) as helper:
        box.tool("write", path=order, text=command)
        helper.wait(PATIENCE_S * 2)
    return said(proof)


def keeper(box: Box) -> str | None:
    """The tool of one session orders the keeper of another one to end its CLI."""
    victim = box.session()
    victim.prompt("@stall")
    pid, proof = victim.cli(), box.proof()
    box.tool("end_keeper", directory=victim.dir / "runs" / "1", proof=proof, pid=pid)
    reached = said(proof) if wait_until(lambda: gone(pid), 5) else None
    victim.call("close")
    return reached


def ended(box: Box) -> str | None:
    """The tool kills the daemon. The next one must have every event, and end the turn once."""
    session = box.session()
    pid = box.ready().pid
    session.prompt(f"@bash kill -9 {pid}\nafterwards")
    if not wait_until(lambda: gone(pid)):
        return None
    box.ready()
    end = session.end_of(session.events("prompt_accepted")[-1]["turn_id"])
    assert end["outcome"] == "completed", end
    return f"daemon {pid} ended; the next one completed the turn"


def token_of_door(words: tuple[str, ...], box: Box) -> str | None:
    """The tool makes itself a token of a door, with the command that its user has."""
    proof, env = (
        box.proof(),
        {"CLISUP_SOCKET": box.daemon.socket, "CLISUP_STATE_DIR": str(box.daemon.root / "client-state")},
    )
    names = " ".join(f"{name}={value}" for name, value in env.items())
    box.session().ask(f"@bash {names} {sys.executable} -m clisup {' '.join(words)} > {proof}")
    text = said(proof)
    return text if text and (len(text.strip()) > 20) else None


def flooded(box: Box) -> str | None:
    """The tool holds hundreds of connections open, and a client of the user still gets its answers."""
    proof = box.proof()
    box.begin("flood", path=box.ready().socket, most=700, proof=proof)
    until(lambda: said(proof))
    reached = box.neighbour_works()
    return reached or None


ATTACKS = (
    *(Attack("T1", f"connect {name}", partial(connect, how), name in IN_SHORT) for name, how in TRICKS.items()),
    Attack("T1", "hold 700 connections, so that no client is served", flooded),
    *(Attack("T2", f"the bridge's token opens {name}", partial(bridge, name), name == "session/list")
      for name in ("session/list", "session/prompt of its own session", "a token of another session", "no hello")),
    Attack("T20", "the bridge's token opens the session's tools", partial(bridge, "its tool list")),
    Attack("T3", "memory, variables and descriptors of daemon, keeper, zygote", memory, True),
    Attack("T18", "borrow the connection of a program of the user", borrowed),
    Attack("T18", "borrow the connection of `clisup logs -f`", of_command),
    Attack("T19", "let a helper outside of the tree connect", helped),
    Attack("T14", "end the CLI of another session by its keeper's socket", keeper),
    Attack("T13", "end the daemon by a signal", ended, True),
    Attack("T21", "read the token of clisup gateway", partial(token_of_door, ("gateway", "--print-token"))),
)  # fmt: skip

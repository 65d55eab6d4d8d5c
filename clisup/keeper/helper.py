"""Guard of one helper program: git, a version probe, a command of the user. The program runs like a CLI.

The guard has a link to the process that asked. The first message on the link is the launch spec, with the program's
stdin, stdout and stderr. The guard answers `started` before it forks: without that answer nothing ran. After the
program's exit the guard answers `exited`, waits as long as processes of the program live and the link is open, kills the
rest, and answers `over`. The end of the link, for whatever reason, ends the program with all its descendants: the guard
is their subreaper, so none escapes by a session of its own or a double fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import Any

from clisup.keeper.child import SpawnFailed, spawn
from clisup.keeper.spec import DEFAULTS, InvalidMessage, RunSpec, field_of, parse_object
from clisup.keeper.system import PR_SET_CHILD_SUBREAPER, prctl, set_process_name
from clisup.keeper.tree import ProcessTree

HELPER_SPEC_MAX = 16 * 1024 * 1024
REAP_MS = 500  # between two looks for ended orphans of a running program
LAST_LOOK_MS = 10  # between two looks for the end of the processes that an exited program left


def guard_helper() -> int:
    """Guard the program of the spec that comes on stdin. Return the exit status of the guard."""
    link = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
    set_process_name("clisup-helper")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        spec, stdio = _receive(link)
    except (InvalidMessage, OSError):
        return 65
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _send(link, {"started": os.getpid()})
    try:
        _guard(link, spec, stdio)
    except SpawnFailed as failure:
        _send(link, {"error": failure.record["errno"]})
    return 0


def _receive(link: socket.socket) -> tuple[RunSpec, tuple[int, int, int]]:
    """Return the launch spec and the program's descriptors. Raises `InvalidMessage`, `OSError`."""
    data, fds, _, _ = socket.recv_fds(link, 65536, 3)
    while not data.endswith(b"\n"):
        more = link.recv(65536)
        if not more or len(data) > HELPER_SPEC_MAX:
            raise InvalidMessage("the spec of a helper is incomplete")
        data += more
    if len(fds) != 3:
        raise InvalidMessage("a helper has three descriptors")
    return _spec_of(parse_object(data)), (fds[0], fds[1], fds[2])


def _spec_of(message: dict[str, Any]) -> RunSpec:
    env = {_encoded(name): _encoded(value) for name, value in field_of(message, "env", dict).items()}
    argv = [_encoded(word) for word in field_of(message, "argv", list)]
    fixed = {name: DEFAULTS[name] for name in ("term_grace_s", "int_grace_s", "oom_score_adj", "umask", "cgroup")}
    return RunSpec(
        run_dir="", argv=[_found(argv[0], env), *argv[1:]], env=env, marker={}, cwd="/", stdin=None, stdin_eof=True,
        stdout_mode="pipe", spool_bytes=0, stderr_bytes=0, wall_s=0, lease_s=0, orphans="kill", orphan_grace_s=0, **fixed,
    )  # fmt: skip


def _encoded(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise InvalidMessage("argv or env holds a NUL")
    return data


def _found(name: bytes, env: dict[bytes, bytes]) -> bytes:
    """Return the program's path, as execvp(3) finds it by the program's own PATH."""
    if b"/" in name:
        return name
    places = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = (os.path.join(place, name) for place in places if place.startswith(b"/"))
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), name)


def _guard(link: socket.socket, spec: RunSpec, stdio: tuple[int, int, int]) -> None:
    """Run the program to the end of its tree, and answer. Raises `SpawnFailed`."""
    tree = ProcessTree(None)
    tree.main = spawn(spec, stdio)
    for fd in stdio:
        os.close(fd)
    poller = select.poll()
    poller.register(link, select.POLLIN)
    main = os.pidfd_open(tree.main)
    poller.register(main, select.POLLIN)
    while tree.status is None:
        ready = dict(poller.poll(REAP_MS))
        tree.reap()
        if link.fileno() in ready:  # a closed link, or the order to end: the message has no content
            break
    else:
        poller.unregister(main)
        if not tree.childless:
            _send(link, {"exited": _code(tree)})
        while not tree.childless and not poller.poll(LAST_LOOK_MS):
            tree.reap()
    tree.kill()
    record = tree.record()
    left = [process["comm"] for process in record["left"]]
    _send(link, {"over": _code(tree), "survivors": [entry["comm"] for entry in record["survivors"]], "left": left})


def _code(tree: ProcessTree) -> int | None:
    """Return the program's exit code, negative for a signal."""
    status = tree.exit_status()
    return status["exit_code"] if status["signal"] is None else -status["signal"]


def _send(link: socket.socket, message: dict[str, Any]) -> None:
    with suppress(OSError):  # nobody waits for the answer any more
        link.sendall(json.dumps(message).encode() + b"\n")

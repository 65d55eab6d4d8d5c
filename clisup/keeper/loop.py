"""Event loop of a keeper: one poll over pipes, control socket and signals, and the daemon's operations."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from clisup.keeper.control import ControlConnection
from clisup.keeper.keeper import OVER, Keeper
from clisup.keeper.spec import DAY_S, PROTO, InvalidMessage, field_of, seconds_of
from clisup.keeper.streams import OutputStream
from clisup.keeper.system import BLOCK
from clisup.keeper.tree import LISTED_MAX, SIGNALS

LADDER_MAX = 16  # steps
Handler = Callable[[], None]


class KeeperLoop:
    """Loop of a keeper, from the CLI's start to the end. It imports nothing: the installation may be upgraded meanwhile."""

    def __init__(self, keeper: Keeper) -> None:
        """Catch signals: each signal writes a byte into a polled pipe. Raises `OSError`."""
        self._keeper = keeper
        self._terminated = False
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the parent may have blocked signals
        self._operations: dict[str, Callable[[ControlConnection, dict[str, Any]], None]] = {
            "hello": self._hello, "stdin": self._stdin, "eof": self._stdin, "signal": self._signal, "end": self._end,
            "orphans": self._orphans, "survivors": self._survivors, "seen": self._seen,
        }  # fmt: skip

    def run(self) -> None:
        """Run until the exit record is written and the daemon has read it."""
        keeper = self._keeper
        while keeper.phase != OVER or (keeper.control.connection.open and time.monotonic() < keeper.phase_until):
            handlers, poller = self._handlers(), select.poll()
            for fd, (events, _) in handlers.items():
                poller.register(fd, events)
            timeout = self._timeout_ms()
            ready = poller.poll(timeout)
            while timeout is None and self._copies(ready):
                ready = poller.poll()
            for fd, _ in ready:
                handlers[fd][1]()
            # Deadlines come after events, so that a stopped keeper first reads the events that arrived meanwhile.
            if self._terminated:
                self._terminated = False
                keeper.end("operator", keeper.term_ladder())
            keeper.check(time.monotonic())

    def _handlers(self) -> dict[int, tuple[int, Handler]]:
        """Return the events and the handler of each descriptor to poll."""
        keeper, connection = self._keeper, self._keeper.control.connection
        wanted: dict[int, tuple[int, Handler]] = {
            self._woken: (select.POLLIN, self._on_signal),
            keeper.control.fileno(): (select.POLLIN, self._on_connect),
        }
        if connection.open:
            events = select.POLLIN if connection.flushed else select.POLLIN | select.POLLOUT
            wanted[connection.fileno()] = (events, self._on_connection)
        if keeper.stdin:
            wanted[keeper.stdin.fd] = (select.POLLOUT, self._on_stdin)
        for stream in keeper.outputs.readable() if keeper.phase != OVER else ():
            wanted[stream.source] = (select.POLLIN, self._pump(stream))
        return wanted

    def _copies(self, ready: list[tuple[int, int]]) -> bool:
        """Copy a block of stdout if nothing else is ready. Return whether the loop may wait for the same again.

        A line that comes alone is the most frequent case by far.
        """
        outputs, connection = self._keeper.outputs, self._keeper.control.connection
        out = outputs.out
        if ready != [(out.source, select.POLLIN)] or not out.pump():
            return False
        outputs.report()
        return not out.pending and not out.dropped and connection.open and connection.flushed

    def _timeout_ms(self) -> float | None:
        """Return the time to the next deadline, or None without a deadline.

        poll cuts the time to whole milliseconds. Without the added millisecond the loop would spin through the last one.
        """
        deadlines = self._keeper.deadlines()
        if not deadlines:
            return None
        return min(DAY_S, max(0.0, min(deadlines) - time.monotonic())) * 1000 + 1

    # -- events

    def _on_terminate(self, *_: Any) -> None:
        self._terminated = True

    def _on_signal(self) -> None:
        with suppress(OSError):
            os.read(self._woken, BLOCK)
        self._keeper.tree.reap()

    def _pump(self, stream: OutputStream) -> Handler:
        def pump() -> None:
            stream.pump()
            self._keeper.outputs.report()

        return pump

    def _on_stdin(self) -> None:
        stdin, control = self._keeper.stdin, self._keeper.control
        for number in stdin.write():
            control.connection.send({"ack": number})
        if stdin.error:
            for number in stdin.abandon():
                control.connection.send({"nack": number, "error": stdin.error})
            control.push({"push": "stdin_error", "error": stdin.error})

    def _on_connect(self) -> None:
        tree = self._keeper.tree
        self._keeper.control.accept((tree.keeper, tree.main))

    def _on_connection(self) -> None:
        connection = self._keeper.control.connection
        connection.flush()
        try:
            for message in connection.read():
                self._handle(connection, message)
        except ValueError:  # an invalid message, or text outside UTF-8: only this connection ends
            connection.close()

    def _handle(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        name = field_of(message, "op", str)
        if not connection.greeted and name != "hello":
            raise InvalidMessage("hello comes first")
        if name in self._operations:
            self._operations[name](connection, message)
        else:
            connection.send({"error": "unknown_op", "op": name[:64]})  # perhaps of a newer daemon

    # -- operations

    def _hello(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        keeper, (out, err) = self._keeper, self._keeper.outputs.sizes
        keeper.control.greet(message.get("window", 1), (out, err))
        connection.send({"hello": {
            "proto": PROTO, "pid": keeper.tree.main, "start_time": keeper.main_start,
            "keeper_pid": keeper.tree.keeper, "last_id": keeper.stdin.last_written,
            "last_taken": keeper.stdin.last_taken, "out": out, "err": err,
            "state": "exited" if keeper.phase == OVER else "ending" if keeper.ending else "running",
            "blocked": keeper.outputs.blocked, "stdin_error": keeper.stdin.error, "window": keeper.control.window,
        }})  # fmt: skip
        if keeper.record is not None:
            connection.send({"push": "exited", "exit": keeper.record})

    def _stdin(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        """Take stdin text or its end. A written id gets its ack again, and no id is written twice."""
        stdin, number = self._keeper.stdin, field_of(message, "id", int)
        text = None if message["op"] == "eof" else field_of(message, "data", str)
        if number < 1:
            raise InvalidMessage("ids begin at 1")
        if number <= stdin.last_written:
            connection.send({"ack": number})
        elif number > stdin.last_taken or stdin.fd < 0:
            error = self._add_stdin(number, text)
            if error:
                connection.send({"nack": number, "error": error})

    def _add_stdin(self, number: int, text: str | None) -> str | None:
        if self._keeper.tree.status is not None:
            return "exited"
        try:
            return self._keeper.stdin.add(number, None if text is None else text.encode())
        except UnicodeEncodeError:
            return "encoding"

    def _signal(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        number, target = SIGNALS.get(field_of(message, "signal", str)), message.get("target", "main")
        if number is None or target not in ("main", "tree"):
            raise InvalidMessage("no such signal or target")
        self._keeper.tree.signal(number, whole=target == "tree")

    def _end(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        spec = self._keeper.spec
        if "ladder" in message:
            steps = [_step(item) for item in field_of(message, "ladder", list)[:LADDER_MAX]]
        else:
            steps = [("INT", spec.int_grace_s)] if spec.int_grace_s else []
            steps += self._keeper.term_ladder()
        self._keeper.end(str(message.get("reason", "client"))[:128], steps)

    def _orphans(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        self._keeper.set_orphan_grace(seconds_of(message, "grace_s"))

    def _survivors(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        living = [stat for stat in self._keeper.tree.living() if stat.pid != self._keeper.tree.main]
        connection.send({"survivors": [stat.listed() for stat in living[:LISTED_MAX]], "total": len(living)})

    def _seen(self, connection: ControlConnection, message: dict[str, Any]) -> None:
        self._keeper.control.acknowledge(self._keeper.outputs.sizes)


def _step(item: Any) -> tuple[str, float]:
    if type(item) is not list or len(item) != 2 or item[0] not in SIGNALS:
        raise InvalidMessage("a step is [signal, seconds]")
    return item[0], seconds_of({"grace": item[1]}, "grace")

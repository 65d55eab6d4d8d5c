"""Target of one `[[notify]]` table: a follower of all journals with a durable cursor, and the delivery of its messages.

The cursor of a session moves when the message about an event is delivered or given up. After a kill the next daemon
sends it again, under the same id. Nothing is queued: the events wait in the journals. A target that does not answer
delays only its own messages.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from clisup.config.model import NotifyConfig
from clisup.daemon.journal.recorder import Recorder
from clisup.daemon.metrics import Metrics
from clisup.daemon.notify.delivery import Delivery, Outcome
from clisup.errors import ClisupError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.log import event_logger
from clisup.host.threads import in_thread
from clisup.model.journal import event_type
from clisup.model.structs import JsonObject
from clisup.policy.notify import NOTICED, NotifyMessage, Subject, kind_of, message_of, next_wait
from clisup.policy.wall_time import age_of
from clisup.store.clock_store import look_at_clock
from clisup.store.cursor_store import CursorFile

if TYPE_CHECKING:
    from clisup.daemon.sessions.registry import Manager
    from clisup.daemon.sessions.session import Session

__all__ = ["APPROVAL_GRACE_S", "NotifyTarget"]

APPROVAL_GRACE_S = 1.0
"""Age of an approval that is told. A rule, or a program, answers most approvals at once."""
SETTLE_PAUSE_S = 0.02
_log = event_logger()


class NotifyTarget:
    """Follower for one table. `notify` marks a session; the task `run` reads and delivers."""

    def __init__(self, manager: Manager, config: NotifyConfig, cursor: CursorFile, delivery: Delivery) -> None:
        self.config = config
        self.delivery = delivery
        self._manager = manager
        self._cursor = cursor
        self._metrics: Metrics = manager.services.metrics
        self._marked: OrderedDict[str, tuple[Recorder, int]] = OrderedDict()  # with the last seq to look at
        self._news = trio.Event()
        self._scope = trio.CancelScope()
        self._counts = {"delivered": 0, "failed": 0, "given_up": 0}
        self._error: str | None = None  # of the last try, until one succeeds
        self._since: str | None = None
        self._gave_up = False  # since then, each message has one try, until one succeeds

    def notify(self, recorder: Recorder, *, at_once: bool = True) -> None:
        """Mark a session with news."""
        self._marked[recorder.session_id] = recorder, recorder.next_seq - 1
        self._news.set()

    def forget(self, session_id: str) -> None:
        """Drop a deleted session."""
        self._marked.pop(session_id, None)

    def describe(self) -> JsonObject:
        """Return the row of `notify/list` and `daemon/status`."""
        config = self.config
        return {
            "name": config.label,
            "on": list(config.on),
            "kind": "command" if config.url is None else "url",
            "target": config.target,
            "format": config.format,
            "signed": config.signed,
            "labels": config.labels,
            "backends": config.backends,
            "state": "ok" if self._error is None else "failing",
            "failing_since": self._since,
            "error": self._error,
            **self._counts,
        }

    async def run(self) -> None:
        """Read and deliver until `end`. The next daemon delivers what is left."""
        with self._scope:
            while True:
                await self._news.wait()
                self._news = trio.Event()
                while self._marked:
                    session_id, (recorder, last) = next(iter(self._marked.items()))
                    try:
                        await self._take(recorder, last)
                    except Exception as error:  # whatever one journal holds, the other sessions are told
                        _log.error("message not made", session=session_id, notify=self.config.label, exc_info=error)
                        self._move(recorder, last)
                    await trio.lowlevel.checkpoint()

    def end(self) -> None:
        """Stop. What is not delivered stays before the cursor."""
        self._scope.cancel()

    async def settle(self) -> None:
        """Wait until the messages about all events are delivered, unless the target fails. The caller sets a limit."""
        while self._marked and self._error is None:
            await trio.sleep(SETTLE_PAUSE_S)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _take(self, recorder: Recorder, last: int) -> None:
        """Read one piece of a journal, and tell its events. Then the next session has its turn."""
        session_id = recorder.session_id
        after = self._cursor.seqs.get(session_id, 0)
        session = self._manager.find(session_id)
        if session is None or session.recorder is not recorder or after >= last:
            if self._marked.get(session_id) == (recorder, last):
                del self._marked[session_id]
            return
        reader = recorder.reader(after)
        try:
            block = await recorder.read(reader)
        finally:
            reader.close()
        for stored in block.events() if block is not None else ():
            if event_type(stored.event) in NOTICED:
                await self._tell(session, json.loads(stored.event))
                self._move(recorder, stored.seq)
        self._move(recorder, last if block is None else min(last, block.frames.end - 1))
        if session_id in self._marked:
            self._marked.move_to_end(session_id)

    def _move(self, recorder: Recorder, seq: int) -> None:
        session = self._manager.find(recorder.session_id)
        if session is None or session.recorder is not recorder:
            return  # deleted meanwhile
        with suppress(ClisupError):  # on a bad disk the next daemon sends the message again, under the same id
            self._cursor.move(recorder.session_id, seq)
            return
        self._cursor.seqs[recorder.session_id] = max(seq, self._cursor.seqs.get(recorder.session_id, 0))

    # -- telling -----------------------------------------------------------------------------------------------------

    async def _tell(self, session: Session, event: JsonObject) -> None:
        config, spec = self.config, session.spec
        kind = kind_of(event, config.on)
        wanted = not config.backends or spec.backend in config.backends
        if kind is None or not wanted or not config.labels.items() <= spec.labels.items():
            return
        if kind == "approval_requested":
            await trio.sleep(max(0.0, APPROVAL_GRACE_S - _age(event)))
        branches, context = self._manager.services.branches, session.context
        await branches.refresh([spec.cwd])
        about = Subject(
            spec.session_id, spec.backend, context.setting("model"), spec.cwd, spec.labels,
            title=context.title, branch=branches.of(spec.cwd),
        )  # fmt: skip
        await self._deliver(session, event, message_of(event, kind, about, config.pages))

    async def _age(self, event: JsonObject) -> float:
        """Return the seconds since an event, as far as the clock went steadily: a jump of the clock gives up no message."""
        look = await in_thread(partial(look_at_clock, self._manager.services.state_dir, keep=False))
        try:
            return age_of(clock.seconds_of(str(event["ts"])), look)
        except ValueError:
            return 0.0

    async def _deliver(self, session: Session, event: JsonObject, message: NotifyMessage) -> None:
        """Try until the message is delivered or given up. An approval that was answered meanwhile needs no message."""
        tried = 0
        while message.type != "approval_requested" or event["approval_id"] in session.approvals.open:
            if await self._age(event) > self.config.max_age_s:
                self._give_up(message, tried, f"the event is older than {self.config.max_age_s:g} s")
                return
            failpoint("notify.before")
            outcome = await self.delivery.attempt(message)
            failpoint("notify.after")
            tried += 1
            if outcome.ok:
                self._succeeded()
                return
            self._failed(outcome)
            if outcome.final or tried > (0 if self._gave_up else self.config.retries):
                self._give_up(message, tried, outcome.detail)
                return
            await trio.sleep(next_wait(tried, outcome.retry_after_s))

    def _succeeded(self) -> None:
        self._count("delivered")
        if self._error is not None:
            _log.info("messages delivered again", notify=self.config.label)
        self._error, self._since, self._gave_up = None, None, False

    def _failed(self, outcome: Outcome) -> None:
        self._count("failed")
        if self._error is None:
            self._since = clock.timestamp()
            _log.warning("messages fail", notify=self.config.label, target=self.config.target, error=outcome.detail)
        self._error = outcome.detail

    def _give_up(self, message: NotifyMessage, tried: int, why: str) -> None:
        self._count("given_up")
        self._gave_up = self._gave_up or tried > 0
        session, turn = message.data.get("session_id"), message.data.get("turn_id")
        _log.warning(
            "message given up",
            session=session,
            turn=turn,
            notify=self.config.label,
            type=message.type,
            tries=tried,
            error=why,
        )

    def _count(self, result: str) -> None:
        self._counts[result] += 1
        self._metrics.count("clisup_notifications_total", result)


def _age(event: JsonObject) -> float:
    """Return the age of an event in seconds. The wall clock may have been set: then an event is new."""
    try:
        return max(0.0, clock.age_of(str(event["ts"])))
    except ValueError:
        return 0.0

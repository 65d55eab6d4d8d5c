"""Messages of the daemon to a CLI's stdin: a prompt for a live process, an answer, a control request and its answer.

The daemon journals each message with an id, then sends the message to the keeper. A file holds the text until the CLI's
stdin has received the message. So the CLI gets each message once, even if the daemon dies at any moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio
from msgspec.structs import replace

from clisup.backends.base import ControlAnswer
from clisup.daemon.journal.recorder import Item
from clisup.daemon.journal.storage import STORAGE_RETRY_S
from clisup.daemon.runs.batch import Batch
from clisup.daemon.runs.keeper_link import KeeperLink
from clisup.daemon.runs.run_parts import RunSink
from clisup.errors import WorldError
from clisup.host.failpoints import failpoint
from clisup.host.log import event_logger
from clisup.model.sessions.turn_state import SentMessage, TurnState
from clisup.store.session_dir import RunDir

__all__ = ["ControlRequests", "StdinMessages"]

_log = event_logger()


class StdinMessages:
    """Messages to one run. Several tasks may call `send`.

    `decoded_to` returns the end of the last decoded stdout line. The ids of messages follow this end.
    """

    def __init__(
        self, sink: RunSink, run_dir: RunDir, keeper: KeeperLink, batch: Batch, decoded_to: Callable[[], int]
    ) -> None:
        self._sink = sink
        self._dir = run_dir
        self._keeper = keeper
        self._batch = batch
        self._decoded_to = decoded_to
        self._acknowledged = 0  # the highest id in the CLI's stdin, as the keeper reported

    def next_id(self) -> int | None:
        """Reserve the id of a message, or return None if no message can be sent now."""
        return self._keeper.next_id(self._decoded_to())

    async def send(self, text: str, item: Callable[[], Item], ready: Callable[[], bool]) -> bool:
        """Journal `item()` and send `text` (whole lines).

        Return False if the run has ended or `ready` refuses at the last moment.
        """
        token = await self._batch.with_retry(lambda: self._dir.save_message(text))
        while True:
            await self._keeper.ready()
            await self._batch.store()
            try:
                sent = self._send_now(text, token, item, ready)
            except WorldError:  # nothing was journaled; the next `with_retry` waits for the disk
                await trio.sleep(STORAGE_RETRY_S)
                token = await self._batch.with_retry(lambda: self._dir.save_message(text))
                continue
            if not sent:
                self._dir.drop_message(token)
            return sent

    def _send_now(self, text: str, token: str, item: Callable[[], Item], ready: Callable[[], bool]) -> bool:
        """Reserve the id, journal and send in one step: a later id must not reach the keeper first."""
        number = self.next_id()
        if number is None or not ready():
            return False
        message = item()
        memo = TurnState(say=SentMessage(number, token), heard=self._acknowledged)
        self._sink.record([replace(message, memo=(message.memo or TurnState()) | memo)])
        failpoint("say.journaled")
        self._keeper.say(number, text)
        return True

    def repeat(self) -> None:
        """Send the messages of an earlier daemon again. The keeper skips messages that the CLI already has."""
        for number, token in self._sink.turn.says:
            if (text := self._dir.load_message(token)) is not None:
                self._keeper.say(number, text)
            elif self._dir.keeps_message(token):
                _log.warning("session file refused", session=self._dir.session, file="runs/said", fields=[])

    def acknowledged(self, number: int) -> None:
        """Drop the stored messages up to this id, because the CLI's stdin has received the messages."""
        self._acknowledged = max(self._acknowledged, number)
        for sent, token in self._sink.turn.says:
            if sent <= number:
                self._dir.drop_message(token)


class _OpenRequest:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: ControlAnswer | None = None


class ControlRequests:
    """Open control requests of one run, by id."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenRequest] = {}

    async def request(self, request_id: str, send: Callable[[], Awaitable[bool]]) -> ControlAnswer | None:
        """Send a request and wait for the answer. Return None if the request was not sent, or without an answer at the run's end."""
        request = self._open[request_id] = _OpenRequest()
        try:
            if not await send():
                return None
            await request.done.wait()
            return request.answer
        finally:
            del self._open[request_id]

    def answered(self, answers: Iterable[ControlAnswer]) -> None:
        """Deliver answers to their waiters. Ignore answers to requests of an earlier daemon."""
        for answer in answers:
            if (request := self._open.get(answer.request_id)) is not None:
                request.answer = answer
                request.done.set()

    def close(self) -> None:
        """End all waits: no answer comes any more."""
        for request in self._open.values():
            request.done.set()

"""Messages of the daemon to a CLI's stdin: a prompt for a live process, an answer, a control request and its answer.

Each message is journaled with its id before the keeper gets it. Its text waits in a file until the CLI's stdin has it.
So the CLI gets each message once, even if the daemon dies at any moment.
"""

from __future__ import annotations

import uuid
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
from clisup.model.sessions.turn_state import SentMessage, TurnState
from clisup.store.session_dir import RunDir

__all__ = ["ControlRequests", "StdinMessages"]


class StdinMessages:
    """Messages to one run. `send` may be called from several tasks.

    `decoded_to` returns the end of the last stdout line that was decoded: ids of messages follow it.
    """

    def __init__(
        self, sink: RunSink, run_dir: RunDir, keeper: KeeperLink, batch: Batch, decoded_to: Callable[[], int]
    ) -> None:
        self._sink = sink
        self._dir = run_dir
        self._keeper = keeper
        self._batch = batch
        self._decoded_to = decoded_to
        self._acknowledged = 0  # the highest id that the CLI's stdin has, as the keeper reported

    def next_id(self) -> int | None:
        """Reserve the id of a message, or return None if none can be sent now."""
        return self._keeper.next_id(self._decoded_to())

    async def send(self, text: str, item: Callable[[], Item], ready: Callable[[], bool]) -> bool:
        """Journal `item()` and send `text` (whole lines).

        Return False if the run has ended or `ready` refuses at the last moment.
        """
        token = uuid.uuid4().hex
        await self._batch.with_retry(lambda: self._dir.save_message(token, text))
        while True:
            await self._keeper.ready()
            await self._batch.store()
            try:
                sent = self._send_now(text, token, item, ready)
            except WorldError:  # nothing was journaled; the next `with_retry` waits for the disk
                await trio.sleep(STORAGE_RETRY_S)
                await self._batch.with_retry(lambda: self._dir.save_message(token, text))
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
        """Send the messages of an earlier daemon again. The keeper knows which of them the CLI has had."""
        for number, token in self._sink.turn.says:
            if (text := self._dir.load_message(token)) is not None:
                self._keeper.say(number, text)

    def acknowledged(self, number: int) -> None:
        """Drop the stored messages up to this id: the CLI's stdin has them."""
        self._acknowledged = max(self._acknowledged, number)
        for sent, token in self._sink.turn.says:
            if sent <= number:
                self._dir.drop_message(token)


class _OpenRequest:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: ControlAnswer | None = None


class ControlRequests:
    """Open control requests of one run, by their ids."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenRequest] = {}

    async def request(self, request_id: str, send: Callable[[], Awaitable[bool]]) -> ControlAnswer | None:
        """Send a request and wait for its answer. Return None if it was not sent, or the run ended without an answer."""
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

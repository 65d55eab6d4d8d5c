"""Watch over all sessions: a session that begins to need somebody is told to the browsers that asked for it."""

from __future__ import annotations

import logging

import trio

from clisup.client.raw import JsonObject
from clisup.errors import ClisupError
from clisup.web.access.tokens import TokenBook
from clisup.web.link import PageLink
from clisup.web.push.delivery import PushSender
from clisup.web.push.messages import PushAddress, PushMessage, push_message

__all__ = ["MESSAGE_S", "MOST_AT_ONCE", "MOST_WAITING", "PushWatch"]

MOST_WAITING = 50
"""Events that wait for their messages at most. Further events are told to nobody; the pages show them."""

MOST_AT_ONCE = 10
"""Connections to push services at once."""

MESSAGE_S = 40.0
"""Seconds for one message to all browsers. A push service that does not answer holds up no other one for longer."""

_AGAIN_S = 2.0
_logger = logging.getLogger(__name__)  # the log of clisup web, unlike docs/reference/observe.md
_NEEDING = ("approval_requested", "turn_completed")


class PushWatch:
    """Reader of the events of `link`, and sender of messages to the browsers in `book`."""

    def __init__(self, link: PageLink, book: TokenBook, sender: PushSender) -> None:
        self._link, self._book, self._sender = link, book, sender
        self._limit = trio.CapacityLimiter(MOST_AT_ONCE)
        self._events, self._source = trio.open_memory_channel[JsonObject](MOST_WAITING)

    async def run(self) -> None:
        """Tell what happens. Approvals that wait already come first: they may be of a time without this process."""
        self._link.listener = self._take
        for event in await self._pending():
            self._take({**event, "type": "approval_requested"})
        async for event in self._source:
            await self._tell(event)

    def _take(self, event: JsonObject) -> None:
        if event["type"] in _NEEDING:
            try:
                self._events.send_nowait(event)
            except trio.WouldBlock:
                pass

    async def _pending(self) -> list[JsonObject]:
        while True:
            try:
                return list((await self._link.call("approval/list"))["approvals"])
            except ClisupError:
                await trio.sleep(_AGAIN_S)

    async def _tell(self, event: JsonObject) -> None:
        try:
            browsers = self._book.push_addresses()
        except ClisupError as error:
            _logger.warning("push: %s", error.message)
            return
        if not browsers or push_message(event, None) is None:
            return
        message = push_message(event, await self._title(str(event["session_id"])))
        assert message is not None
        with trio.move_on_after(MESSAGE_S):
            async with trio.open_nursery() as nursery:
                for token_id, address in browsers.items():
                    nursery.start_soon(self._send, token_id, address, message)

    async def _send(self, token_id: str, address: PushAddress, message: PushMessage) -> None:
        try:
            async with self._limit:
                known = await self._sender.send(address, message)
        except ValueError:  # of a file that somebody has edited
            known = False
        if not known:
            self._forget(token_id, address)

    def _forget(self, token_id: str, address: PushAddress) -> None:
        try:
            if self._book.push_addresses().get(token_id) == address:
                self._book.set_push_address(token_id, None)
        except ClisupError as error:
            _logger.warning("push: %s", error.message)

    async def _title(self, session_id: str) -> str | None:
        try:
            title = (await self._link.call("session/get", session_id=session_id))["title"]
        except ClisupError:
            return None
        return str(title) if title else None

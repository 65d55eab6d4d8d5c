"""State of a live process, and the frames in which it tells of its messages and of itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from clisup.demo.args import Options
from clisup.demo.inbox import Inbox, Message
from clisup.demo.session import Session
from clisup.demo.waiting import Waiting
from clisup.demo.wire import Wire
from clisup.stream_json.frames import Frame, Frames

if TYPE_CHECKING:
    from clisup.demo.mcp import Servers

__all__ = ["LiveProcess"]


class LiveProcess:
    """Input, waiting messages and output of one process. `begin` makes the init frame of a turn."""

    def __init__(
        self,
        wire: Wire,
        options: Options,
        session: Session,
        frames: Frames,
        begin: Callable[[str], Frame],
        servers: Servers | None = None,
    ) -> None:
        self.wire, self.options, self.session, self.frames = wire, options, session, frames
        self.begin, self.servers = begin, servers
        self.state = "idle"
        self.inbox = Inbox()
        self.waiting = Waiting()
        self._tells_states = os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1"

    def send(self, frame: Frame) -> None:
        """A frame that is of no turn."""
        self.wire.frame(frame)

    def tell_state(self, state: str) -> None:
        self.state = state
        if self._tells_states:
            self.send(self.frames.system("session_state_changed", state=state))

    def wake(self) -> None:
        if self.state == "idle":
            self.tell_state("running")

    def tell(self, message: Message, state: str) -> None:
        """How far a message has come. claude says it of those with a uuid alone."""
        if message.uuid:
            self.send(self.frames.lifecycle(message.uuid, state))

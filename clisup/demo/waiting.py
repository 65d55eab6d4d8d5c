"""What will have a turn: messages, and follow-ups of background tasks. Pure: the order of claude 2.1.329."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from clisup.demo.inbox import Message
    from clisup.demo.toolplay import Background

__all__ = ["FollowUp", "Waiting"]

_ORDER = {"now": 0, "next": 1, "later": 2}


class FollowUp(NamedTuple):
    """A turn that the end of a background task starts."""

    task: Background
    priority: str = "next"
    command: str = ""


class Waiting:
    """The queue of a live process, in the order in which things came."""

    def __init__(self) -> None:
        self._items: list[Message | FollowUp] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: Message | FollowUp) -> None:
        self._items.append(item)

    def messages(self) -> list[Message]:
        return [item for item in self._items if not isinstance(item, FollowUp)]

    def withdraw(self, uuid: str) -> Message | None:
        """Take a message out. None where none waits by this uuid."""
        found = next((message for message in self.messages() if message.uuid == uuid), None)
        if found is not None:
            self._items.remove(found)
        return found

    def take_next(self) -> FollowUp | list[Message]:
        """What has its turn now: the most urgent, first come. Messages that follow each other at one urgency are one turn."""
        first = min(self._items, key=lambda item: _ORDER[item.priority])
        if isinstance(first, FollowUp):
            self._items.remove(first)
            return first
        batch = [first]
        alike = [item for item in self._items if item.priority == first.priority]
        for item in alike[alike.index(first) + 1 :]:
            if first.command or item.command or isinstance(item, FollowUp):
                break  # a command is a turn of its own
            batch.append(item)
        for message in batch:
            self._items.remove(message)
        return batch

    def take_in(self) -> list[Message | FollowUp]:
        """What the running turn takes in when it asks the model again: all but commands and what is for later."""
        taken = [item for item in self._items if item.priority != "later" and not item.command]
        for item in taken:
            self._items.remove(item)
        return taken

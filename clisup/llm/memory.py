"""Working memory: values by key, in one file beside the conversation, that outlive every edit of it.

    memory = WorkingMemory("chat.memory.json")
    memory.set("plan/step-1", {"do": "read the logs", "done": False})
    memory.query("plan/", where={"done": False})
    Conversation(model, memory=memory)        # the model gets a tool `memory` for the same

Each change is on the disk when its call returns, whole or not at all. Threads, tasks and processes may share a file: each sees what
the others wrote. A change waits for the disk: in a trio task with little time, put `trio.to_thread.run_sync` before it.
"""

from __future__ import annotations

import os
from pathlib import Path

from clisup.llm.kept_values import MAX_BYTES, MAX_ENTRIES, MAX_KEY_CHARS, MAX_VALUE_BYTES, KeptValues
from clisup.llm.memory_tool import MemoryTool

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "MAX_KEY_CHARS", "MAX_VALUE_BYTES", "WorkingMemory"]

BRIEF_CHARS = 2000
"""How long the list of keys in a system prompt may be."""


class WorkingMemory(KeptValues):
    """The values of one file; without a `path`, in this process alone.

    Keys are 1 to `MAX_KEY_CHARS` printable characters; `/` between their parts is a custom that `query` by prefix goes well with.
    Values are JSON. The limits are as given; what would pass one is refused with `UsageError` (`limit_exceeded`), and nothing
    is changed. Raises `WorldError` (`storage_failed`) where the file cannot be read or written.
    """

    @classmethod
    def beside(cls, conversation: str | os.PathLike[str], **limits: int) -> WorkingMemory:
        """The memory in the file beside a conversation's: `chat.memory.json` for `chat.json`."""
        path = Path(conversation)
        return cls(path.with_name(f"{path.stem}.memory.json"), **limits)

    def brief(self) -> str:
        """For a system prompt: that there is a memory, and which keys it has now."""
        keys, shown, length = self.keys(), [], 0
        for key in keys:
            length += len(key) + 2
            if length > BRIEF_CHARS:
                break
            shown.append(key)
        more = f", and {len(keys) - len(shown)} more" if len(shown) < len(keys) else ""
        held = f"It holds: {', '.join(shown)}{more}." if keys else "It is empty."
        return (
            "You have a working memory, by the tool `memory`. Earlier parts of this conversation may be left out; what you put into "
            f"the memory stays. {held}"
        )

    def tool(self) -> MemoryTool:
        """The tool `memory`, by which a model sets, gets, deletes and queries."""
        return MemoryTool(self)

"""A session as a test sees it: prompts in, events out, and the processes behind it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wire import PATIENCE_S, pauses

if TYPE_CHECKING:
    from harness import Harness


class SessionProbe:
    """`ask` waits for the turn's end, `prompt` does not."""

    def __init__(self, daemon: Harness, session_id: str) -> None:
        self.daemon, self.id = daemon, session_id

    def call(self, method: str, /, **params: Any) -> Any:
        return self.daemon.call(f"session/{method}", session_id=self.id, **params)

    def ask(self, text: str | list[dict[str, Any]], **params: Any) -> dict[str, Any]:
        return dict(self.call("prompt", prompt=text, wait=True, **params))

    def prompt(self, text: str | list[dict[str, Any]], **params: Any) -> str:
        return str(self.call("prompt", prompt=text, **params)["turn_id"])

    def get(self) -> dict[str, Any]:
        return dict(self.call("get"))

    def events(self, type_: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """All stored events; those of a type, with these fields."""
        events: list[dict[str, Any]] = []
        page = {"next_seq": 1, "eof": False}
        while not page["eof"]:
            page = self.call("events", after_seq=page["next_seq"] - 1, limit=1000)
            events += page["events"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "a hole or a double"
        return [e for e in events if type_ in (None, e["type"]) and fields.items() <= e.items()]

    def await_event(self, type_: str, nth: int = 1, **fields: Any) -> dict[str, Any]:
        """The nth event like this, as soon as it is there. What was read once is not asked for again."""
        end, pause, seq = time.monotonic() + PATIENCE_S, pauses(), 0
        while True:
            page = self.call("events", after_seq=seq, limit=1000)
            for event in page["events"]:
                assert event["seq"] == seq + 1, "a hole or a double"
                seq += 1
                nth -= event["type"] == type_ and fields.items() <= event.items()
                if nth == 0:
                    return dict(event)
            assert time.monotonic() < end, f"no {type_} {fields} in {[_short(e) for e in self.events()]}"
            if page["eof"]:
                time.sleep(next(pause))

    def end_of(self, turn_id: str) -> dict[str, Any]:
        """The turn's one end."""
        self.await_event("turn_completed", turn_id=turn_id)
        ends = self.events("turn_completed", turn_id=turn_id)
        assert len(ends) == 1
        return ends[0]

    def chunks(self) -> list[int]:
        """The numbers that `@stream` said, delta by delta."""
        deltas = [event["text"] for event in self.events("content_delta")]
        return [int(text[6:12]) for text in deltas if text.startswith("chunk ")]

    def types(self) -> list[str]:
        return [event["type"] for event in self.events()]

    # -- its processes

    @property
    def dir(self) -> Path:
        return self.daemon.state / "sessions" / self.id

    def cli(self) -> int:
        """The pid of the running CLI, as soon as it said something."""
        self.await_event("session_init")
        return int(self.events("process_started")[-1]["pid"])

    def keeper(self) -> int:
        with open(f"/proc/{self.cli()}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])

    def processes(self) -> list[int]:
        """All that carry this session's marker."""
        marker = f"CLISUP_SESSION={self.id}\0".encode()
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and marker in _environ(name)]


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _short(event: dict[str, Any]) -> str:
    return f"{event['seq']}:{event['type']}:{event.get('turn_id')}"

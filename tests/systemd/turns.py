"""A turn that is in the middle of its answer while something happens to its service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service import Service
from session_probe import SessionProbe

CHUNKS = 60


class RunningTurn:
    """A turn in the middle of its answer, and a client that follows it. It cannot end before `finish` lets it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.gate = Path(service.lab.root) / f"go-{service.unit}"
        self.gate.unlink(missing_ok=True)
        self.session: SessionProbe = service.new()
        self.follower = service.wire()
        self.follower.call("session/subscribe", session_id=self.session.id, after_seq=0)
        self.turn = self.session.prompt(f"@stream {CHUNKS} 13 0.02\n@wait-file {self.gate}\nthe last word")
        self.heard = self.follower.events_until("content_delta")

    def finish(self) -> dict[str, Any]:
        """Let it end; the follower comes back by its cursor. Every event is there once, for it and in the journal."""
        self.follower.close()
        self.gate.touch()
        with self.service.wire() as wire:
            wire.call("session/subscribe", session_id=self.session.id, after_seq=self.heard[-1]["seq"])
            self.heard += wire.events_until("turn_completed")
        assert [event["seq"] for event in self.heard] == list(range(1, len(self.heard) + 1))
        assert self.session.events()[: len(self.heard)] == self.heard
        assert self.session.chunks() == list(range(CHUNKS))
        assert [event["exit_code"] for event in self.session.events("process_exited")] == [0]
        assert len(self.session.events("process_started")) == 1
        return self.session.end_of(self.turn)

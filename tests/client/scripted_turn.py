"""What the fake daemon does with a prompt: a turn of a few events, with an approval in the middle where that is wanted."""

from __future__ import annotations

from typing import Any

from fake_daemon import SESSION, FakeDaemon, Peer

RESULT = {"turn_id": "t2", "outcome": "completed", "text": "Hello.", "usage": {}}
BASH = {"approval_id": "1:r1", "tool_name": "Bash", "input": {"command": "ls"}}


class Script:
    """A daemon with one session: a prompt is turn t2, in which something else happens as well, and an approval is asked for."""

    def __init__(self, daemon: FakeDaemon, *, approval: bool = False) -> None:
        self.daemon, self.approval = daemon, approval
        self.session = SESSION
        self.waiting: list[dict[str, Any]] = []
        daemon.emit("notice", None, code="old", message="")
        daemon.handlers |= {
            "session/prompt": self.prompt,
            "approval/list": lambda peer, params: {"approvals": self.waiting},
            "approval/respond": self.respond,
            "session/interrupt": self.interrupt,
            "session/close": lambda peer, params: {"ok": True},
        }

    def prompt(self, peer: Peer, params: dict[str, Any]) -> Any:
        if params.get("wait"):
            return RESULT
        self.session = session = params["session_id"]
        self._emit("prompt_accepted", "t2", delivery="delivered")
        accepted = {"turn_id": "t2", "seq": self.daemon.last_seq(session), "delivery": "delivered"}
        self._emit("content_delta", "t1", kind="text", text="of another turn")
        self._emit("content_delta", "t2", kind="text", text="Hel")
        if self.approval:
            self.ask(session=session)
        elif "hold" not in params["prompt"]:
            self.end()
        return accepted

    def ask(self, approval_id: str = "1:r1", session: str = SESSION) -> None:
        asked = BASH | {"approval_id": approval_id}
        self.daemon.emit("approval_requested", "t2", session=session, **asked)
        self.waiting.append(
            asked
            | {"session_id": session, "turn_id": "t2", "suggestions": [], "requested_at": "2026-01-01T00:00:00Z"}
            | {"seq": self.daemon.last_seq(session)}
        )

    def respond(self, peer: Peer, params: dict[str, Any]) -> Any:
        self.waiting = [item for item in self.waiting if item["approval_id"] != params["approval_id"]]
        self._emit("approval_resolved", "t2", approval_id=params["approval_id"], decision=params["decision"])
        self.end()
        return {}

    def interrupt(self, peer: Peer, params: dict[str, Any]) -> Any:
        self.end("interrupted")
        return {"turn_id": "t2", "outcome": "interrupted"}

    def end(self, outcome: str = "completed") -> None:
        self._emit("turn_completed", "t2", outcome=outcome, text="Hello.", usage={"output_tokens": 2})
        self._emit("notice", None, code="later", message="")

    def _emit(self, type_: str, turn_id: str | None, **fields: Any) -> None:
        self.daemon.emit(type_, turn_id, session=self.session, **fields)

"""Sessions of the demo CLI: their prompts, answers and cost, kept in transcripts.

The transcripts are below `$DEMO_CLI_HOME`, else `$XDG_STATE_HOME/clisup-demo`, else `$HOME/.local/state/clisup-demo`.
The real claude never looks there.
"""

from __future__ import annotations

import os
from typing import Any

from clisup.stream_json.transcript import Transcript, open_transcript

__all__ = ["DemoSession", "open_session"]


class DemoSession:
    """Session with its transcript. The transcript is read at start and grows with each turn.

    `prompts`, `total_cost_usd` and `model` are of all turns so far. `answered` holds the uuids of messages that had their
    turn. `messages` has all messages in order; `messages_before` counts those before the running turn.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.id = transcript.session_id
        self.prompts: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.messages_before = 0
        self.answered: set[str] = set()
        self.total_cost_usd = 0.0
        self.model: str | None = None
        self.transcript = transcript
        self._asked: list[str] = []

    def load(self, entry: dict[str, Any]) -> None:
        """Take over one entry of a transcript."""
        if entry.get("type") in ("user", "assistant"):
            self.messages.append({"role": entry["type"], "content": entry["message"]["content"]})
        if entry.get("type") == "user":
            injected = entry.get("injected", False)
            self.prompts += [] if injected else _prompts(entry["message"]["content"])
            self._asked = [*(self._asked if injected else ()), *entry.get("uuids", ())]
        elif entry.get("type") == "cost-state":
            self.answered.update(self._asked)
            self.total_cost_usd = float(entry["totalCostUSD"])
            self.model = entry.get("model")

    def add_prompt(self, prompt: str, uuids: list[str] | None = None) -> None:
        """Add the prompt of the running turn, which the messages `uuids` gave. The session can be resumed from now on."""
        self.prompts.append(prompt)
        self.messages_before = len(self.messages)
        self._add("user", prompt, **({"uuids": uuids} if uuids else {}))

    def add_to_turn(self, text: str, uuids: list[str]) -> None:
        """Add a message that the running turn has received."""
        self._add("user", text, uuids=uuids, injected=True)

    def add_answer(self, content: list[dict[str, Any]]) -> None:
        self._add("assistant", content)

    def add_cost(self, cost_usd: float, model: str) -> float:
        """Add the cost of a turn and return the session's total."""
        self.total_cost_usd = round(self.total_cost_usd + cost_usd, 9)
        self.model = model
        self.transcript.append({"type": "cost-state", "totalCostUSD": self.total_cost_usd, "model": model})
        return self.total_cost_usd

    def _add(self, role: str, content: Any, **fields: Any) -> None:
        message = {"role": role, "content": content}
        self.messages.append(message)
        self.transcript.append({"type": role, "message": message, **fields})


def open_session(cwd: str, *, new: str | None, resume: str | None, fork: bool, persist: bool) -> DemoSession:
    """Open the session of a run. A fork begins with a copy of `resume`. Raises `SessionInUse` or `UnknownSession`."""
    home = _home()
    source = None if resume is None else open_transcript(home, cwd, new=None, resume=resume)
    resumed = source if not fork else None
    session = DemoSession(resumed or open_transcript(home, cwd, new=new, resume=None))
    session.transcript.persist = persist
    for entry in source.entries() if source else ():
        session.load(entry)
        if resumed is None:
            session.transcript.append({**entry, "sessionId": session.id})
    return session


def _prompts(content: Any) -> list[str]:
    """Return the text of a message as a prompt. Results of tools are no prompts. Other programs may have written blocks."""
    if not isinstance(content, list):
        return [str(content)]
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return ["\n".join(texts)] if texts else []


def _home() -> str:
    explicit = os.environ.get("DEMO_CLI_HOME")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return explicit or os.path.join(state, "clisup-demo")

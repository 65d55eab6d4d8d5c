"""The demo's sessions: how many turns they had, and what they have cost so far.

Their transcripts lie where no real claude looks: below `$DEMO_CLI_HOME`, else `$XDG_STATE_HOME/clisup-demo`, else
`$HOME/.local/state/clisup-demo`.
"""

from __future__ import annotations

import os
from typing import Any

from clisup.stream_json.transcript import Transcript, open_transcript

__all__ = ["Session", "open_session"]


class Session:
    """One session's transcript, read at start and appended to as the turn goes on.

    `total_cost_usd`, `model` and `prompts` are of all turns before this one; `answered` holds the uuids of messages that had
    their turn. `said` are its messages in order, as the transcript has them, and `said_before` counts those before this turn.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.id = transcript.session_id
        self.prompts: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.said_before = 0
        self.answered: set[str] = set()
        self._asked: list[str] = []
        self.total_cost_usd = 0.0
        self.model: str | None = None
        self._transcript = transcript
        self._append = transcript.append

    def load(self) -> None:
        """Read the transcript."""
        for entry in self._transcript.entries():
            self._fold(entry)

    def copy(self, source: Transcript) -> None:
        """Begin with the transcript of another session."""
        for entry in source.entries():
            self._fold(entry)
            self._append({**entry, "sessionId": self.id})

    def _fold(self, entry: dict[str, Any]) -> None:
        if entry.get("type") in ("user", "assistant"):
            self.said.append({"role": entry["type"], "content": entry["message"]["content"]})
        if entry.get("type") == "user":
            injected = entry.get("injected", False)
            self.prompts += [] if injected else _prompts(entry["message"]["content"])
            self._asked = [*(self._asked if injected else ()), *entry.get("uuids", ())]
        elif entry.get("type") == "cost-state":
            self.answered.update(self._asked)
            self.total_cost_usd = float(entry["totalCostUSD"])
            self.model = entry.get("model")

    def forget(self) -> None:
        """From here on nothing is written."""
        self._transcript.persist = False

    def add_prompt(self, prompt: str, uuids: list[str] | None = None) -> None:
        """This turn's prompt: from here on the session exists and can be resumed. `uuids` are those of its messages."""
        self.prompts.append(prompt)
        self.said_before = len(self.said)
        self.said.append({"role": "user", "content": prompt})
        more = {"uuids": uuids} if uuids else {}
        self._append({"type": "user", "message": {"role": "user", "content": prompt}, **more})

    def take_in(self, text: str, uuids: list[str]) -> None:
        """A message that the running turn has taken in: no turn of its own."""
        message = {"role": "user", "content": text}
        self.said.append(message)
        self._append({"type": "user", "message": message, "uuids": uuids, "injected": True})

    def add_answer(self, content: list[dict[str, Any]]) -> None:
        self.said.append({"role": "assistant", "content": content})
        self._append({"type": "assistant", "message": self.said[-1]})

    def add_cost(self, cost_usd: float, model: str) -> float:
        """This turn's cost; gives the session's new total."""
        self.total_cost_usd = round(self.total_cost_usd + cost_usd, 9)
        self.model = model
        self._append({"type": "cost-state", "totalCostUSD": self.total_cost_usd, "model": model})
        return self.total_cost_usd


def open_session(cwd: str, *, new: str | None, resume: str | None, fork: bool = False, persist: bool = True) -> Session:
    """The session of this turn. A fork begins with a copy of `resume`. Raises `SessionInUse` or `UnknownSession`."""
    home = _home()
    source = None if resume is None else open_transcript(home, cwd, new=None, resume=resume)
    goes_on = source is not None and not fork
    transcript = source if source is not None and goes_on else open_transcript(home, cwd, new=new, resume=None)
    transcript.persist = persist
    session = Session(transcript)
    if goes_on:
        session.load()
    elif source is not None:
        session.copy(source)
    return session


def _prompts(content: Any) -> list[str]:
    """The text of a message as a prompt; results of tools are none. Whoever wrote the transcript may have written blocks."""
    if not isinstance(content, list):
        return [str(content)]
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return ["\n".join(texts)] if texts else []


def _home() -> str:
    explicit = os.environ.get("DEMO_CLI_HOME")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return explicit or os.path.join(state, "clisup-demo")

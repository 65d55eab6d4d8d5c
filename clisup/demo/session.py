"""The demo's transcripts: which sessions exist, how many turns they had, and what they have cost so far.

They lie where no real claude looks: `$DEMO_CLI_HOME`, else `$XDG_STATE_HOME/clisup-demo`, else
`$HOME/.local/state/clisup-demo`; below it `projects/<slug of the cwd>/<session id>.jsonl`, as claude has it.
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["Session", "SessionInUse", "UnknownSession", "new_id", "open_session"]

_SLUG_LIMIT = 200


class SessionInUse(Exception):
    """`--session-id` names a session that exists already."""


class UnknownSession(Exception):
    """`--resume` names a session that has no transcript."""


class Session:
    """One session's transcript, read at start and appended to as the turn goes on.

    `total_cost_usd`, `model` and `prompts` are of all turns before this one; `answered` holds the uuids of messages that had
    their turn. `said` are its messages in order, as the transcript has them, and `said_before` counts those before this turn.
    """

    def __init__(self, session_id: str, path: str, *, persist: bool = True) -> None:
        self.id = session_id
        self.prompts: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.said_before = 0
        self.answered: set[str] = set()
        self._asked: list[str] = []
        self.total_cost_usd = 0.0
        self.model: str | None = None
        self._path = path
        self._persist = persist

    def load(self) -> None:
        """Read the transcript. Lines that do not parse are skipped, as claude skips a last line that was cut."""
        with open(self._path, "rb") as file:
            for line in file:
                try:
                    self._fold(json.loads(line))
                except ValueError:
                    continue

    def copy(self, source: str) -> None:
        """Begin with the transcript of another session."""
        with open(source, "rb") as file:
            for line in file:
                entry = json.loads(line)
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
        self._persist = False

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

    def _append(self, entry: dict[str, Any]) -> None:
        if not self._persist:
            return
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        line = json.dumps({"sessionId": self.id, "uuid": new_id(), **entry}, separators=(",", ":")) + "\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def open_session(cwd: str, *, new: str | None, resume: str | None, fork: bool = False, persist: bool = True) -> Session:
    """The session of this turn. A fork begins with a copy of `resume`. Raises `SessionInUse` or `UnknownSession`."""
    root = os.path.join(_home(), "projects")
    source = None if resume is None else _find(root, resume)
    if resume is not None and source is None:
        raise UnknownSession(resume)
    if resume is not None and source is not None and not fork:
        session = Session(resume, source, persist=persist)
        session.load()
        return session
    if new is not None and _find(root, new) is not None:
        raise SessionInUse(new)
    session_id = new or new_id()
    session = Session(session_id, os.path.join(root, _slug(cwd), f"{session_id}.jsonl"), persist=persist)
    if source is not None:
        session.copy(source)
    return session


def _prompts(content: Any) -> list[str]:
    """The text of a message as a prompt; results of tools are none. Whoever wrote the transcript may have written blocks."""
    if not isinstance(content, list):
        return [str(content)]
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return ["\n".join(texts)] if texts else []


def new_id() -> str:
    """A random UUID (version 4); the uuid module would cost more to import than the rest of this file."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _home() -> str:
    explicit = os.environ.get("DEMO_CLI_HOME")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return explicit or os.path.join(state, "clisup-demo")


def _find(root: str, session_id: str) -> str | None:
    """The transcript, in whichever project's folder: claude resumes from another directory too. An empty file is none."""
    name = f"{os.path.basename(session_id)}.jsonl"
    folders = sorted(os.listdir(root)) if os.path.isdir(root) else []
    paths = (os.path.join(root, folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.path.getsize(path)), None)


def _slug(cwd: str) -> str:
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in cwd)
    if len(slug) <= _SLUG_LIMIT:
        return slug
    checksum = 0
    for byte in cwd.encode("utf-8", "surrogateescape"):
        checksum = (checksum * 31 + byte) & 0xFFFFFFFF
    return f"{slug[:_SLUG_LIMIT]}-{checksum:08x}"

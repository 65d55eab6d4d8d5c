"""A dialogue with a live claude: what is said on its stdin and when, as data, and the speaker who says it.

    cues = (say("Hello.", "one"), IDLE, END)
    speaker = Speaker(process, cues)
    stdout = speaker.listen()

A cue is due when the one before it is done. `After` waits for a line of stdout, behind the line that the `After` before it found;
so a dialogue is the same in each recording, however fast the machine is.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from typing import IO, Any

__all__ = [
    "END",
    "IDLE",
    "After",
    "Cue",
    "End",
    "Say",
    "Send",
    "Speaker",
    "Wait",
    "after",
    "answer",
    "answer_with",
    "ask",
    "refuse",
    "say",
    "uuid_of",
]

Frame = dict[str, Any]
LIMIT_SECONDS = 120.0
_REQUEST = "$REQUEST"


@dataclass(frozen=True)
class Say:
    """One whole line. `$REQUEST` in it stands for the id of the CLI's latest control request."""

    line: str


@dataclass(frozen=True)
class After:
    """Wait for the next line of stdout that this pattern is found in."""

    pattern: str


@dataclass(frozen=True)
class Wait:
    """Seconds for what the CLI does without a word."""

    seconds: float


@dataclass(frozen=True)
class End:
    """The end of stdin."""


@dataclass(frozen=True)
class Send:
    """A signal to the CLI alone."""

    name: str


Cue = Say | After | Wait | End | Send

END = End()
IDLE = After('"state":"idle"')


def uuid_of(name: str) -> str:
    """A message's uuid, the same in every recording."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"clisup:message:{name}"))


def say(content: str | list[Frame], name: str | None = None, **fields: Any) -> Say:
    """A user message. `name` makes its uuid; without one the CLI tells nothing of its way."""
    frame: Frame = {"type": "user", "message": {"role": "user", "content": content}}
    return Say(json.dumps({**frame, **({"uuid": uuid_of(name)} if name else {}), **fields}))


def ask(subtype: str, request_id: str | None = None, **fields: Any) -> Say:
    """A control request; its id is its subtype unless it is given."""
    request = {"subtype": subtype, **fields}
    return Say(json.dumps({"type": "control_request", "request_id": request_id or subtype, "request": request}))


def answer(behavior: str, **fields: Any) -> Say:
    """The answer to the CLI's latest question for a permission."""
    response = {"subtype": "success", "request_id": _REQUEST, "response": {"behavior": behavior, **fields}}
    return Say(json.dumps({"type": "control_response", "response": response}))


def answer_with(**response: Any) -> Say:
    """Another answer to the CLI's latest control request."""
    whole = {"subtype": "success", "request_id": _REQUEST, "response": response}
    return Say(json.dumps({"type": "control_response", "response": whole}))


def refuse(error: str) -> Say:
    """An error as the answer to the CLI's latest control request."""
    response = {"subtype": "error", "request_id": _REQUEST, "error": error}
    return Say(json.dumps({"type": "control_response", "response": response}))


def after(pattern: str) -> After:
    return After(pattern)


class Speaker:
    """Says the cues while it reads stdout.

    `said` holds, in order, how many lines of stdout had come and the line that was said then (None: the end of stdin).
    """

    def __init__(self, process: subprocess.Popen[bytes], cues: tuple[Cue, ...]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._cues = process, cues
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._heard = threading.Condition()
        self._lines: list[bytes] = []
        self._place = 0
        self._ended = False
        self.said: list[tuple[int, str | None]] = []
        self.sent: list[Frame] = []

    def listen(self) -> bytes:
        """Stdout to its end. The process is killed where it outlives the limit."""
        guard = threading.Timer(LIMIT_SECONDS, self._process.kill)
        guard.start()
        speaker = threading.Thread(target=self._speak, daemon=True)
        speaker.start()
        for line in self._stdout:
            with self._heard:
                self._lines.append(line)
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()
        self._process.wait()
        guard.cancel()
        speaker.join(5)
        return b"".join(self._lines)

    def _speak(self) -> None:
        for cue in self._cues:
            match cue:
                case Say():
                    self._write(cue.line.replace(_REQUEST, self._latest_request()))
                case After():
                    if not self._wait_for(re.compile(cue.pattern.encode())):
                        return
                case Wait():
                    time.sleep(cue.seconds)
                case End():
                    self._note(None)
                    self._stdin.close()
                case Send():
                    self.sent.append({"signal": cue.name, "after_line": len(self._lines)})
                    self._process.send_signal(signal.Signals[cue.name])

    def _write(self, line: str) -> None:
        self._note(line)
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            return  # the CLI has gone, and its own last words tell why

    def _note(self, line: str | None) -> None:
        with self._heard:
            self.said.append((len(self._lines), line))

    def _wait_for(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether such a line came before stdout ended."""
        with self._heard:
            while True:
                while self._place < len(self._lines):
                    self._place += 1
                    if pattern.search(self._lines[self._place - 1]):
                        return True
                if self._ended:
                    return False
                self._heard.wait()

    def _latest_request(self) -> str:
        with self._heard:
            requests = [line for line in self._lines if b'"type":"control_request"' in line]
        return str(json.loads(requests[-1])["request_id"]) if requests else _REQUEST

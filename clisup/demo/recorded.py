"""Player of recordings of any CLI: their bytes, pauses, waits for stdin, and exit. docs/how-to/recordings.md has the format.

python -m clisup.demo --play FILE [SPEED] [flags of the recorded CLI]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, NamedTuple, NoReturn

from clisup.demo.arguments import BadArguments
from clisup.demo.script import seconds
from clisup.demo.stdio import nap
from clisup.stream_json.frames import Frame
from clisup.stream_json.lines import write_all

__all__ = ["PlayedRecording", "load", "play", "play_as_command"]

_SESSION_FLAGS = ("--session-id", "--resume")
_VERSION_LINES = {
    "claude": "{} (Claude Code)",
    "demo": "{} (clisup demo)",
    "codex": "codex-cli {}",
    "codex-exec": "codex-cli {}",
}
_Offsets = list[tuple[int, Any]]


class PlayedRecording(NamedTuple):
    """Recording. `timing` are (offset, seconds), `said` are (offset, lines of stdin, or None for its end)."""

    data: bytes
    kind: str | None
    version: str
    session_id: str | None
    timing: _Offsets
    said: _Offsets
    duration_s: float
    stderr: str
    exit_code: int
    signal: int


def load(path: str) -> PlayedRecording:
    """Read a recording. Raises `BadArguments`."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        with open(f"{path.removesuffix('.jsonl')}.meta.json", "rb") as file:
            meta = json.loads(file.read())
        return _recording(path, data, meta)
    except OSError as error:
        reason = f"{error.filename} cannot be read: {error.strerror}"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"its meta file is wrong: {type(error).__name__}"
    raise BadArguments(f"Error: cannot play {path}, because {reason}")


def _recording(path: str, data: bytes, meta: Frame) -> PlayedRecording:
    name = meta.get("signal")
    folder = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    known = folder if folder in _VERSION_LINES else None  # older recordings are in folders of their kind
    return PlayedRecording(
        data=data,
        kind=meta.get("kind") or known,
        version=str(meta.get("cli_version", "unknown")),
        session_id=meta.get("launch", {}).get("native_session_id") or _session_id(meta.get("argv", [])),
        timing=[(int(end), float(at)) for end, at in meta.get("timing", ())],
        said=[(int(end), None if count is None else int(count)) for end, count in meta.get("said", ())],
        duration_s=float(meta.get("duration_s") or 0),
        stderr=str(meta.get("stderr") or ""),
        exit_code=int(meta.get("exit_code") or 0),
        signal=int(signal.Signals(name) if isinstance(name, int) else signal.Signals[name]) if name else 0,
    )


def _session_id(argv: list[str]) -> str | None:
    for at, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in _SESSION_FLAGS:
            return value if equals else next(iter(argv[at + 1 :]), None)
    return None


def play_as_command(argv: list[str]) -> NoReturn:
    """Play `FILE [SPEED] [FLAGS]` as the command of a backend. Raises `BadArguments`."""
    if not argv:
        raise BadArguments("Error: --play needs the name of a recording")
    path, rest = argv[0], argv[1:]
    speed = 1.0
    if rest and not rest[0].startswith("-") and rest[0].replace(".", "", 1).isdecimal():
        speed = seconds(rest.pop(0))
    recording = load(path)
    if "--version" in rest:
        line = _VERSION_LINES.get(recording.kind or "", "{}").format(recording.version)
        write_all(1, line.encode() + b"\n")
        sys.exit(0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stdin = _StdinLines()
    stdin.start()
    play(recording, _session_id(rest), speed, stdin)


class _StdinLines(threading.Thread):
    """Reads stdin and counts its lines."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._changed = threading.Condition()
        self._lines, self._ended = 0, False

    def run(self) -> None:
        while not self._ended:
            chunk = os.read(0, 65536)
            with self._changed:
                self._lines += chunk.count(b"\n")
                self._ended = not chunk
                self._changed.notify_all()

    def wait_for(self, lines: int | None) -> None:
        """Wait for a number of lines, or for the end of stdin."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (lines is not None and self._lines >= lines))


def play(
    recording: PlayedRecording, session_id: str | None, speed: float, stdin: _StdinLines | None = None
) -> NoReturn:
    """Play a recording, `speed` times as fast (0: without pauses), and end as it ended.

    `session_id` replaces the recorded one, so that the answer belongs to the session of the request.
    """
    began, at = time.monotonic(), 0
    times, waits = dict(recording.timing), dict(recording.said) if stdin else {}
    stops = sorted({end for end in (*times, *waits) if 0 < end < len(recording.data)} | {len(recording.data)})
    old, new = (recording.session_id or "").encode(), (session_id or "").encode()
    for end in stops:
        if stdin and at in waits:
            stdin.wait_for(waits[at])
        if speed and end in times:
            nap(began + times[end] / speed - time.monotonic())
        piece = recording.data[at:end]
        write_all(1, piece.replace(old, new) if old and new else piece)
        at = end
    if stdin and at in waits:
        stdin.wait_for(waits[at])
    if speed:
        nap(began + recording.duration_s / speed - time.monotonic())
    write_all(2, recording.stderr.encode("utf-8", "replace"))
    if recording.signal:
        if recording.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(recording.signal, signal.SIG_DFL)
        os.kill(os.getpid(), recording.signal)
    os._exit(recording.exit_code & 255)

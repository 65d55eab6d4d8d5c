"""Plays a recording of any CLI: its bytes at their times, its waiting for stdin, its exit. docs/recordings.md has the format.

python -m clisup.demo --play FILE [SPEED] [the flags of whichever CLI it was]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, NamedTuple, NoReturn

from clisup.demo.args import BadArguments
from clisup.demo.readers import seconds
from clisup.stream_json.lines import write_all

__all__ = ["Recording", "load", "play", "play_as_command", "session_id_in"]

OWN_KINDS = ("claude", "demo")
"""The kinds whose recordings the demo can play by itself (`@play`): it speaks claude's stream-json."""

_SESSION_FLAGS = ("--session-id", "--resume")
_VERSION_LINES = {
    "claude": "{} (Claude Code)",
    "demo": "{} (clisup demo)",
    "codex": "codex-cli {}",
    "codex-exec": "codex-cli {}",
}
_LONGEST_SLEEP_S = 3600.0
_Offsets = list[tuple[int, Any]]


class Recording(NamedTuple):
    """One recording. `timing` are (offset, seconds), `said` are (offset, lines of stdin, None for its end)."""

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


def load(path: str) -> Recording:
    """Read a recording. Raises `BadArguments` where the files are missing, or no recording."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        with open(f"{path.removesuffix('.jsonl')}.meta.json", "rb") as file:
            meta = json.loads(file.read())
        return _recording(path, data, meta)
    except OSError as error:
        raise BadArguments(
            f"Error: cannot play {path}, because {error.filename} cannot be read: {error.strerror}"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadArguments(
            f"Error: cannot play {path}, because its meta file is none: {type(error).__name__}"
        ) from None


def _recording(path: str, data: bytes, meta: dict[str, Any]) -> Recording:
    name = meta.get("signal")
    above = os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    known = above if above in _VERSION_LINES else None  # recordings of older tests lie in folders of their kind
    return Recording(
        data=data,
        kind=meta.get("kind") or known,
        version=str(meta.get("cli_version", "unknown")),
        session_id=meta.get("launch", {}).get("native_session_id") or session_id_in(meta.get("argv", [])),
        timing=[(int(end), float(at)) for end, at in meta.get("timing", ())],
        said=[(int(end), None if count is None else int(count)) for end, count in meta.get("said", ())],
        duration_s=float(meta.get("duration_s") or 0),
        stderr=str(meta.get("stderr") or ""),
        exit_code=int(meta.get("exit_code") or 0),
        signal=int(signal.Signals(name) if isinstance(name, int) else signal.Signals[name]) if name else 0,
    )


def session_id_in(argv: list[str]) -> str | None:
    """The session that a command line names."""
    for at, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in _SESSION_FLAGS:
            return value if equals else next(iter(argv[at + 1 :]), None)
    return None


def play_as_command(argv: list[str]) -> NoReturn:
    """`--play FILE [SPEED] ...` as the command of a backend: what follows are that backend's flags. Raises `BadArguments`."""
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
    heard = _Stdin()
    heard.start()
    play(recording, session_id_in(rest), speed, heard)


class _Stdin(threading.Thread):
    """Reads stdin as it comes, and counts its lines."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._news = threading.Condition()
        self._lines, self._ended = 0, False

    def run(self) -> None:
        while True:
            chunk = os.read(0, 65536)
            with self._news:
                self._lines += chunk.count(b"\n")
                self._ended = not chunk
                self._news.notify_all()
            if not chunk:
                return

    def wait_for(self, lines: int | None) -> None:
        """Until so many lines have come, or stdin has ended: None waits for its end alone."""
        with self._news:
            self._news.wait_for(lambda: self._ended or (lines is not None and self._lines >= lines))


def play(recording: Recording, session_id: str | None, speed: float, heard: _Stdin | None = None) -> NoReturn:
    """Say it, at `speed` times its own pace (0: as fast as it goes), and end as it ended.

    `session_id` takes the place of the recorded one, so that the answer is one of the session that was asked for.
    """
    began, at = time.monotonic(), 0
    times, waits = dict(recording.timing), dict(recording.said) if heard else {}
    stops = sorted({end for end in (*times, *waits) if 0 < end < len(recording.data)} | {len(recording.data)})
    old, new = (recording.session_id or "").encode(), (session_id or "").encode()
    for end in stops:
        if heard and at in waits:
            heard.wait_for(waits[at])
        if speed and end in times:
            _sleep_until(began + times[end] / speed)
        piece = recording.data[at:end]
        write_all(1, piece.replace(old, new) if old and new else piece)
        at = end
    if heard and at in waits:
        heard.wait_for(waits[at])
    if speed:
        _sleep_until(began + recording.duration_s / speed)
    write_all(2, recording.stderr.encode("utf-8", "replace"))
    if recording.signal:
        if recording.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(recording.signal, signal.SIG_DFL)
        os.kill(os.getpid(), recording.signal)
    os._exit(recording.exit_code & 255)


def _sleep_until(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(left, _LONGEST_SLEEP_S))

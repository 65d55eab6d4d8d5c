"""Talk to an ACP agent with the adapter's own words: its launch spec, its decoder, its replies. For the recorder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from clisup.backends.base import Adapter, ApprovalAnswer, Carried, Decoded, LaunchRequest
from clisup.model.events import ApprovalRequested
from clisup.model.lines.framing import LineFramer
from clisup.model.usage import NO_USAGE

LIMIT_S = 90.0
CANCELLED = ApprovalAnswer("cancelled")


@dataclass
class Talk:
    """What came of one turn: the agent's lines as they came, and what the decoder made of each."""

    stdout: bytes = b""
    stderr: bytes = b""
    returncode: int = 0
    decoded: list[Decoded] = field(default_factory=list)


def converse(
    adapter: Adapter,
    request: LaunchRequest,
    env: Mapping[str, str],
    *,
    answer: ApprovalAnswer,
    answers: Mapping[str, ApprovalAnswer | None] | None = None,
    cancel_after: str | None = None,
    signal_after: tuple[str, int] | None = None,
    limit_s: float = LIMIT_S,
) -> Talk:
    """Run one turn to the process's end, which also ends a live process.

    The text in `cancel_after` or `signal_after`, once seen in a line, has the turn interrupted by the decoder's own words, or by
    a signal. Every approval gets `answer`, or that of its tool in `answers`.
    """
    spec = adapter.launch(request)
    for name, content in spec.files.items():
        (Path(request.scratch) / name).write_bytes(content.encode() if isinstance(content, str) else content)
    decoder = adapter.decoder(Carried(cost_usd=0.0, usage=NO_USAGE), request)
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        spec.argv,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=request.cwd,
        env={**dict.fromkeys(spec.closed_env, ""), **env, **spec.env},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
    reader.start()
    guard = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
    guard.start()
    talk, framer, cancelled = Talk(), LineFramer(), False
    unanswered: list[str] = []
    _say(process.stdin, spec.stdin)
    for raw in process.stdout:
        talk.stdout += raw
        for line in framer.feed(raw):
            decoded = decoder.decode(line)
            talk.decoded.append(decoded)
            for reply in decoded.replies:
                _say(process.stdin, reply if isinstance(reply, str) else None)
            if decoded.terminal and request.live:
                _say(process.stdin, None)
            for event in decoded.events:
                if isinstance(event, ApprovalRequested):
                    given = (answers or {}).get(event.tool_name, answer)
                    if given is None:
                        unanswered.append(event.approval_id)
                    else:
                        _say(process.stdin, decoder.answer(event.approval_id, given) or "")
        if cancel_after and not cancelled and cancel_after.encode() in raw:
            cancelled = True
            open_ones = (decoder.answer(name, CANCELLED) or "" for name in unanswered)
            _say(process.stdin, (decoder.interrupt() or "") + "".join(open_ones))
        if signal_after and not cancelled and signal_after[0].encode() in raw:
            cancelled = True
            os.killpg(process.pid, signal_after[1])
    talk.returncode = process.wait()
    guard.cancel()
    with contextlib.suppress(
        ProcessLookupError
    ):  # claude-agent-acp leaves its claude behind, which writes into its home
        os.killpg(process.pid, signal.SIGKILL)
    reader.join(5)
    talk.stderr = b"".join(errors)
    return talk


def _say(stdin: IO[bytes], words: str | None) -> None:
    """Write whole lines; None closes. What a process that is gone does not take is lost, as with the daemon."""
    try:
        if words is None:
            stdin.close()
        else:
            stdin.write(words.encode())
            stdin.flush()
    except BrokenPipeError:
        pass


def _drain(pipe: IO[bytes], into: list[bytes]) -> None:
    into.extend(pipe)

"""Directives for tests: hostile output, silence, odd ends, orphans, and steps that a test controls."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from clisup.demo.directives import API_FAILURES, DIRECTIVES, ApiFailure, fail, fail_api
from clisup.demo.output import ignore_signals
from clisup.demo.player import Player, TurnFailed
from clisup.demo.script import (
    Directive,
    ScriptStep,
    count,
    fields,
    one_of,
    read_text,
    seconds,
)  # fmt: skip
from clisup.demo.session import DemoSession
from clisup.demo.tools import BackgroundTask, task_id
from clisup.demo.turn import DemoTurn
from clisup.stream_json.frames import token_usage
from clisup.stream_json.lines import encode_frame, write_all

__all__ = ["ERROR_KINDS", "MORE", "ORPHAN_KINDS", "add_prompt"]

_POLL_S = 0.005
_PIECE = 64 * 1024
_RESETS_AT = 4102444800  # the year 2100: a limit that no clock of a test reaches
_RETRY_DELAY_MS = 50
_JUNK = b"#~junk,~of~no~use\n"
_FLOOD_LINE = b"demo: a line of noise on stderr, of sixty-four bytes in all ...\n"
_RETRIES: dict[str, tuple[int | None, str]] = {
    # kind -> `error_status` and `error` of an api_retry frame
    "authentication": (401, "authentication_failed"),
    "rate_limit": (429, "rate_limit"),
    "overloaded": (529, "overloaded"),
    "server": (500, "server_error"),
    "network": (None, "unknown"),
}
_USAGE_LIMIT = ApiFailure(
    "You've hit your limit · resets Jan 1, 2100, 12am (UTC)", "rate_limit", 429, "rate_limit_error",
    api_error="usage_limit_reached",
)  # fmt: skip
ERROR_KINDS = (*API_FAILURES, "usage_limit", "refusal", "max_turns", "budget")
ORPHAN_KINDS = (
    "plain", "setsid", "pgrp", "double-fork", "holds-stdout", "ignores-term", "clean-env", "stopped", "refork", "respawn",
    "zombie-parent", "many",
)  # fmt: skip


# -- text and tools ----------------------------------------------------------------------------------------------------


def _huge(player: Player, step: ScriptStep) -> None:
    for start in range(0, step.args[0], _PIECE):
        player.breathe()
        player.turn.delta("x" * min(_PIECE, step.args[0] - start))


def _cut(player: Player, step: ScriptStep) -> None:
    player.turn.end_message("end_turn")
    player.turn.delta("This text is ")
    player.turn.delta("taken back.")
    player.turn.abandon_message()
    _retry(player, ScriptStep("retry", ("network", 1), step.line))
    player.turn.delta("This text stays.")


def _unstructured(player: Player, step: ScriptStep) -> None:
    player.in_words = True


def _heartbeat(player: Player, step: ScriptStep) -> None:
    player.tools.first_beat_s = player.tools.beat_s = step.args[0]


def _background(player: Player, step: ScriptStep) -> None:
    pause, text = step.args
    arguments = {"command": "demo", "run_in_background": True, "description": text}
    tool_id = player.turn.tool_use("Bash", arguments)
    player.turn.end_message("tool_use")
    end: list[float] = []

    def is_over() -> bool:
        end.append(time.monotonic() + pause)  # counted from the first look, which comes after the result
        return time.monotonic() >= end[0]

    player.tools.to_background(BackgroundTask(task_id(tool_id), tool_id, text, is_over, text))
    player.tools.after_answers()


# -- time --------------------------------------------------------------------------------------------------------------


def _repeat(player: Player, step: ScriptStep, action: Callable[[int], Any]) -> None:
    pause, times = step.args
    number = 0
    while times is None or number < times:
        action(number)
        number += 1
        player.wait(pause)


def _pings(player: Player, step: ScriptStep) -> None:
    _repeat(player, step, lambda _: player.turn.send(player.turn.frames.stream({"type": "ping"}, None)))


def _drip(player: Player, step: ScriptStep) -> None:
    _repeat(player, step, lambda number: player.wire.bytes(_JUNK[number % len(_JUNK) :][:1]))
    if step.args[1] is not None and step.args[1] % len(_JUNK):
        player.wire.bytes(b"\n")  # the frames after it begin on a line of their own


def _wait_file(player: Player, step: ScriptStep) -> None:
    while not os.path.exists(step.args[0]):
        player.wait(_POLL_S)


def _touch(player: Player, step: ScriptStep) -> None:
    with open(step.args[0], "ab"):
        pass


def _linger(player: Player, step: ScriptStep) -> None:
    player.linger_s = step.args[0]


# -- errors ------------------------------------------------------------------------------------------------------------


def _error(player: Player, step: ScriptStep) -> NoReturn:
    kind, turn = step.args[0], player.turn
    if kind == "refusal":
        _refuse(turn)
    elif kind in ("max_turns", "budget"):
        _exceed(turn, kind)
    elif kind == "usage_limit":
        _use_up(turn, _RESETS_AT)
    else:
        fail_api(turn, kind)
    raise TurnFailed


def _limit(player: Player, step: ScriptStep) -> NoReturn:
    _use_up(player.turn, int(time.time() + step.args[0]))
    raise TurnFailed


def _use_up(turn: DemoTurn, resets_at: int) -> None:
    turn.send(turn.frames.rate_limit(status="rejected", resetsAt=resets_at, rateLimitType="five_hour",
                                     overageStatus="rejected", isUsingOverage=False))  # fmt: skip
    fail(turn, _USAGE_LIMIT)


def _refuse(turn: DemoTurn) -> None:
    """Stop the model's answer: the CLI asks once more in its own words, and gives up at the second refusal."""
    model = turn.frames.model
    turn.delta("I")
    turn.end_message("refusal")
    notice = f"{model}'s safeguards stopped the response above · continuing once with that noted"
    turn.send(turn.frames.system("informational", content=notice, level="notice"))
    request = "Your response above was stopped by a safety classifier — this is not a tool or API error."
    turn.send(turn.frames.user([{"type": "text", "text": request}], isSynthetic=True))
    turn.delta("I")
    turn.end_message("refusal")
    turn.send(
        turn.frames.system("model_refusal_no_fallback", original_model=model, api_refusal_category=None, content="")
    )
    text = f"API Error: {model}'s safeguards flagged this message. Try rephrasing the request in a new session."
    turn.send(turn.frames.synthetic(text, error="invalid_request", is_api_error_message=True))
    turn.finish(subtype="success", is_error=True, terminal_reason="api_error", stop_reason="refusal", result=text,
                api_error_status=None)  # fmt: skip


def _exceed(turn: DemoTurn, kind: str) -> None:
    """Exceed a limit of the command line: a result of another subtype, without a text."""
    turn.end_message("end_turn")
    subtypes = {"max_turns": "error_max_turns", "budget": "error_max_budget_usd"}
    errors = {"max_turns": "Reached maximum number of turns (1)", "budget": "Reached maximum budget ($0.01)"}
    reasons = {"max_turns": "max_turns", "budget": "budget_exhausted"}
    turn.finish(
        subtype=subtypes[kind], is_error=True, terminal_reason=reasons[kind], stop_reason=None, errors=[errors[kind]]
    )


def _retry(player: Player, step: ScriptStep) -> None:
    kind, times = step.args
    status, error = _RETRIES[kind]
    for attempt in range(1, times + 1):
        player.turn.send(player.turn.frames.system(
            "api_retry", attempt=attempt, max_retries=10, retry_delay_ms=_RETRY_DELAY_MS, error_status=status, error=error,
        ))  # fmt: skip
        player.wait(_RETRY_DELAY_MS / 1000)


def _exit(player: Player, step: ScriptStep) -> NoReturn:
    sys.exit(step.args[0])


def _die(player: Player, step: ScriptStep) -> NoReturn:
    if step.args[0] not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(step.args[0], signal.SIG_DFL)
    os.kill(os.getpid(), step.args[0])
    sys.exit(0)  # a signal that does not end a process, such as CHLD


def _orphan(player: Player, step: ScriptStep) -> None:
    from tests.fakecli.orphans import leave_behind  # loads subprocess, which is slow

    kind, lifetime = step.args
    player.turn.text(f"orphan {kind}: pid {leave_behind(kind, lifetime)}")


# -- bytes -------------------------------------------------------------------------------------------------------------


def _line(player: Player, step: ScriptStep) -> None:
    frame = player.turn.frames.system("informational", content="", level="info")
    empty = len(encode_frame(frame))
    frame["content"] = "x" * max(0, step.args[0] - empty - 1)
    player.turn.send(frame)


def _bytes(player: Player, step: ScriptStep) -> None:
    path, size = step.args
    with open(path, "rb") as file:
        data = file.read()
    for at in range(0, len(data), size or len(data) or 1):
        player.wire.bytes(data[at : at + size] if size else data)


def _noise(player: Player, step: ScriptStep) -> None:
    for line in (b"[debug] request sent, 12 ms", b"", b"Warning: not a frame {", b"\x1b[31mred\x1b[0m"):
        player.wire.bytes(line + b"\n")


def _bad(player: Player, step: ScriptStep) -> None:
    """Send three deltas that no `assistant` frame repeats."""
    for spoiled in (b"bad \xff\xfe\xc3 bytes", b"a NUL \\u0000 here", b"half a pair \\ud83d"):
        delta = {"type": "text_delta", "text": "HERE"}
        frame = player.turn.frames.stream({"type": "content_block_delta", "index": 0, "delta": delta}, None)
        player.wire.bytes(encode_frame(frame).replace(b"HERE", spoiled) + b"\n")


def _unknown(player: Player, step: ScriptStep) -> None:
    frame = player.turn.frames.system("from_the_future", detail={"a": [1, 2, 3]})
    player.turn.send({**frame, "type": "from_the_future"})
    player.turn.send(frame)


def _misshapen(player: Player, step: ScriptStep) -> None:
    frames: tuple[dict[str, Any], ...] = (
        {"type": "assistant", "message": "no object"},
        {"type": "stream_event", "event": [1, 2]},
        {"type": "user", "message": {"content": [7, None]}},
        {"type": "system", "subtype": 5},
        {"type": ["result"]},
    )
    for frame in frames:
        player.turn.send(frame)
    player.wire.bytes(b"[1,2,3]\n")


def _stderr(player: Player, step: ScriptStep) -> None:
    write_all(2, step.args[0].encode() + b"\n")


def _stderr_flood(player: Player, step: ScriptStep) -> None:
    left = step.args[0]
    block = _FLOOD_LINE * 1024
    while left > 0:
        write_all(2, block[:left])
        left -= len(block)


# -- facts -------------------------------------------------------------------------------------------------------------


def _usage(player: Player, step: ScriptStep) -> None:
    player.turn.usage = token_usage(*step.args)


def _cost(player: Player, step: ScriptStep) -> None:
    player.turn.cost_usd = step.args[0]


def add_prompt(session: DemoSession, prompt: str, uuids: list[str] | None = None) -> None:
    """Replacement of `DemoSession.add_prompt`: with @no-transcript nothing is written, as if killed too early."""
    if "@no-transcript" in prompt.splitlines():
        session.transcript.persist = False
    _add_prompt(session, prompt, uuids)


_add_prompt = DemoSession.add_prompt


def _nothing(player: Player, step: ScriptStep) -> None:
    """Nothing is left to do."""


# -- readers -----------------------------------------------------------------------------------------------------------


def _seconds_or_ever(text: str) -> float:
    return math.inf if text == "forever" else seconds(text)


def _exit_code(text: str) -> int:
    if count(text) > 255:
        raise ValueError(f"{text!r} is no exit code (0 to 255)")
    return int(text)


def _signal(text: str) -> int:
    name = text.upper().removeprefix("SIG")
    known = {member.name.removeprefix("SIG"): int(member) for member in signal.Signals}
    if name.isdecimal() and int(name) in known.values():
        return int(name)
    if name not in known:
        raise ValueError(f"{text!r} is no signal, such as KILL or 9")
    return known[name]


def _read_timed_text(rest: str) -> tuple[Any, ...]:
    delay, _, text = rest.partition(" ")
    return seconds(delay), *read_text(text.strip())


_TABLE: tuple[tuple[str, str, str, Callable[[str], tuple[Any, ...]], Callable[[Player, ScriptStep], None]], ...] = (
    ("huge", "BYTES", "A text answer of BYTES bytes.", fields(count), _huge),
    ("cut", "", "Some text that is taken back (`abandoned_blocks`), a retry, and a new message.", fields(), _cut),
    ("unstructured", "", "Answer in words although a schema is given.", fields(), _unstructured),
    ("heartbeat", "S", "Report progress of tools every S seconds (first after 3, then every 30).", fields(seconds),
     _heartbeat),
    ("background", "S TEXT", "Pretend a background task. It ends S seconds after the result and starts a turn that says TEXT.",
     _read_timed_text, _background),
    ("pings", "S [N]", "A ping frame every S seconds, N times (for ever).",
     fields(seconds, count, defaults=(None,)), _pings),
    ("drip", "S [N]", "A byte of junk every S seconds, N times (for ever).",
     fields(seconds, count, defaults=(None,)), _drip),
    ("wait-file", "PATH", "Wait until PATH exists.", read_text, _wait_file),
    ("touch", "PATH", "Make the file PATH.", read_text, _touch),
    ("linger", "S|forever", "Stay alive for S seconds after the result.", fields(_seconds_or_ever), _linger),
    ("error", "KIND", f"End the turn with an error. KIND: {', '.join(ERROR_KINDS)}.",
     fields(one_of(*ERROR_KINDS)), _error),
    ("limit", "S", "End the turn with a used-up limit that resets in S seconds.", fields(seconds), _limit),
    ("retry", "KIND N", f"N announced retries, 50 ms apart. KIND: {', '.join(_RETRIES)}.",
     fields(one_of(*_RETRIES), count), _retry),
    ("exit", "CODE", "Exit with CODE, without a result.", fields(_exit_code), _exit),
    ("die", "SIGNAL", "End by a signal (KILL, SEGV, 9), without a result.", fields(_signal), _die),
    ("ignore-term", "", "Ignore SIGTERM and SIGHUP from here on.", fields(),
     lambda player, step: ignore_signals(signal.SIGTERM, signal.SIGHUP)),
    ("ignore-int", "", "Ignore SIGINT from here on.", fields(), lambda player, step: ignore_signals(signal.SIGINT)),
    ("orphan", "KIND S", f"Leave a process behind for S seconds. KIND: {', '.join(ORPHAN_KINDS)}.",
     fields(one_of(*ORPHAN_KINDS), seconds), _orphan),
    ("line", "BYTES", "A frame whose line has BYTES bytes, newline included (512 at least).", fields(count), _line),
    ("raw", "TEXT", "TEXT as a line on stdout.", read_text,
     lambda player, step: player.wire.bytes(step.args[0].encode() + b"\n")),
    ("bytes", "PATH [SIZE]", "The bytes of a file on stdout, SIZE bytes with each write (all at once).",
     fields(str, count, defaults=(0,)), _bytes),
    ("noise", "", "Lines on stdout that are no JSON.", fields(), _noise),
    ("bad", "", "Text deltas with invalid UTF-8, a NUL and a lone surrogate.", fields(), _bad),
    ("unknown", "", "A frame of an unknown type, and one of an unknown subtype.", fields(), _unknown),
    ("misshapen", "", "Frames of known types with the wrong shape.", fields(), _misshapen),
    ("stderr", "TEXT", "TEXT as a line on stderr.", read_text,
     _stderr),
    ("stderr-flood", "BYTES", "BYTES bytes of lines on stderr.", fields(count), _stderr_flood),
    ("env-all", "", "The names of all variables, sorted, one a line.", fields(),
     lambda player, step: player.turn.text("\n".join(sorted(os.environ)))),
    ("say-pid", "", "The process id.", fields(), lambda player, step: player.turn.text(f"pid {os.getpid()}")),
    ("images", "", "The number of images of the prompt.", fields(),
     lambda player, step: player.turn.text(f"images: {player.images}")),
    ("no-transcript", "", "Write no transcript of this turn, as if killed too early.", fields(), _nothing),
    ("usage", "IN OUT", "The turn's input and output tokens.", fields(count, count), _usage),
    ("cost", "USD", "The turn's cost.", fields(seconds), _cost),
)  # fmt: skip

MORE: dict[str, Directive] = {
    "denied": DIRECTIVES["ask"]._replace(group="Tests", meaning="The same as `@ask`."),
    **{name: Directive("Tests", usage, meaning, read, play) for name, usage, meaning, read, play in _TABLE},
}

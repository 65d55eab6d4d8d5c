"""What every backend has in common, whatever its CLI says: the essence of a turn, and the frame around it.

`essence` is the sequence that a program sees of a turn: session_init, thinking, text, tool_use, tool_result:ok or :error, and the
end. What only some backends can tell (deltas of a tool's input, usage, retries, a task's progress) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["ESSENCE", "essence", "expected", "frame_faults"]

ESSENCE: Mapping[str, Sequence[str]] = {
    "text": ("session_init", "text", "completed"),
    "reasoning": ("session_init", "thinking", "text", "completed"),
    "tool_ok": ("session_init", "text?", "tool_use", "tool_result:ok", "text", "completed"),
    "tool_fail": ("session_init", "text?", "tool_use", "tool_result:error", "text", "completed"),
    "resume": ("session_init", "text", "completed"),
    "http_401": ("session_init", "failed:authentication"),
    "unknown_session": ("failed:session_not_found",),
}
"""What each script gives with every backend. `text?`: some models of the scripts say a word before the tool.

The documented difference (docs/backends/README.md): a backend without `thinking` gives none.
"""
Event = Mapping[str, Any]


def essence(events: Iterable[Event]) -> list[str]:
    """The sequence of a turn, runs of the same collapsed; the synthetic texts of a CLI about its own errors are no answer."""
    told: list[str] = []
    streamed: set[tuple[object, str]] = set()  # a message that repeats its deltas says nothing new
    for event in events:
        if event["type"] == "content_delta":
            streamed.add((event.get("message_id"), event["kind"]))
        for word in _words(event):
            if event["type"] == "message" and (event.get("message_id"), word) in streamed:
                continue
            if not told or told[-1] != word:
                told.append(word)
    return told


def _words(event: Event) -> list[str]:
    match event["type"]:
        case "session_init" | "tool_use" as name:
            return [str(name)]
        case "tool_result":
            return ["tool_result:error" if event.get("is_error") else "tool_result:ok"]
        case "content_delta" if event["kind"] != "tool_input":
            return [str(event["kind"])]
        case "message" if not event.get("synthetic"):
            return [block["kind"] for block in event["blocks"] if block["kind"] in ("text", "thinking")]
        case "turn_completed":
            kind = (event.get("error") or {}).get("kind")
            return [f"{event['outcome']}:{kind}" if kind else str(event["outcome"])]
    return []


def expected(case: str, told: Sequence[str], *, thinking: bool) -> list[str]:
    """The essence that a backend has to give, with its documented difference."""
    words = []
    for word in ESSENCE[case]:
        if word == "text?":
            if "text" in told[: told.index("tool_use")]:
                words.append("text")
        elif word != "thinking" or thinking:
            words.append(word)
    return words


def frame_faults(events: Sequence[Event]) -> list[str]:
    """What is wrong with the frame of a turn that ended well: nothing. A message may come whole, without start and stop."""
    faults: list[str] = []
    started: set[str | None] = set()
    open_tools: set[str] = set()
    for event in events:
        name, message = event["type"], event.get("message_id")
        if name == "message_start":
            if message in started:
                faults.append(f"message {message} starts twice")
            started.add(message)
        elif name in ("content_delta", "message_stop") and message not in started:
            faults.append(f"{name} of message {message} before its start")
        elif name == "tool_use":
            if event["tool_use_id"] in open_tools:
                faults.append(f"tool {event['tool_use_id']} is used twice")
            open_tools.add(event["tool_use_id"])
        elif name == "tool_result":
            if event["tool_use_id"] not in open_tools:
                faults.append(f"a result of tool {event['tool_use_id']}, which is not open")
            open_tools.discard(event["tool_use_id"])
    stopped = {event.get("message_id") for event in events if event["type"] == "message_stop"}
    return faults + [f"message {message} never stops" for message in started - stopped]

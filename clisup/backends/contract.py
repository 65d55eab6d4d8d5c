"""Contract of all backends, as checks of recordings: for clisup's own tests, and for those of another package. Pure.

    assert faults(read_recording(path), adapter) == []

`essence` is the sequence that a program sees of a turn: session_init, thinking, text, tool_use, tool_result:ok or :error, and the
end. What only some backends can tell (deltas of a tool's input, usage, retries, a task's progress) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from clisup.backends.base import Adapter, Decoded
from clisup.backends.recording import TurnRecording
from clisup.model.events import AssistantMessage, ContentDelta, EventBase, PermissionDenied, Retracted, Unparsed
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.verdict import Terminal, conclude

__all__ = ["ESSENCE", "decode", "essence", "expected", "faults", "frame_faults", "spoilt_faults", "story", "turn_of"]

Event = Mapping[str, Any]

ESSENCE: Mapping[str, Sequence[str]] = {
    "text": ("session_init", "text", "completed"),
    "reasoning": ("session_init", "thinking", "text", "completed"),
    "tool_ok": ("session_init", "text?", "tool_use", "tool_result:ok", "text", "completed"),
    "tool_fail": ("session_init", "text?", "tool_use", "tool_result:error", "text", "completed"),
    "resume": ("session_init", "text", "completed"),
    "http_401": ("session_init", "failed:authentication"),
    "unknown_session": ("failed:session_not_found",),
}
"""Essence of each script with every backend. `text?`: some models of the scripts say a word before the tool.

The documented difference (docs/backends/README.md): a backend without `thinking` gives none.
"""

# A turn as a client sees it


def decode(recording: TurnRecording, adapter: Adapter) -> list[Decoded]:
    """Return the result of each line. One decoder reads all lines, also of further turns that the CLI began by itself.

    One more result is that of the CLI's exit, if a round trip behind the answer is missing.
    """
    decoder = adapter.decoder(recording.carried, recording.request)
    results = [decoder.decode(line) for line in recording.lines()]
    settled = decoder.settle()
    return results if settled is None else [*results, settled]


def turn_of(recording: TurnRecording, adapter: Adapter) -> list[dict[str, Any]]:
    """Return the events of a recording with one turn, and its end, in the form of the journal."""
    results = decode(recording, adapter)
    terminal = next((result.terminal for result in results if result.terminal), None)
    explained = adapter.explain_exit(recording.run_end(adapter))
    done = conclude(terminal=terminal, record=recording.exit, ending=None, explained=explained, duration_s=None)
    events = [event for result in results for event in result.events]
    return [msgspec.to_builtins(event) for event in (*events, done)]


def essence(events: Iterable[Event]) -> list[str]:
    """Return the essence of a turn. Equal words in a row are one; a CLI's synthetic texts about its own errors are no answer."""
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
    """Return the essence that a backend has to give for a case of `ESSENCE`, with its documented difference."""
    words = []
    for word in ESSENCE[case]:
        if word == "text?":
            if "text" in told[: told.index("tool_use")]:
                words.append("text")
        elif word != "thinking" or thinking:
            words.append(word)
    return words


# Faults


def faults(recording: TurnRecording, adapter: Adapter) -> list[str]:
    """Return what breaks the contract in a recording of a real CLI: nothing, if the adapter is right."""
    results = decode(recording, adapter)
    events = [event for result in results for event in result.events]
    ends = [result.terminal for result in results if result.terminal]
    if unwritable := [fault for event in events for fault in _unwritable(event)]:
        return unwritable
    found = [*_event_faults(recording, adapter, events), *_end_faults(ends, events), *_chunk_faults(recording, adapter)]
    if decode(recording, adapter) != results:
        found.append("the same lines give other events to a second decoder")
    if ends:
        found += _text_faults(events)
    turn = turn_of(recording, adapter)
    return [*found, *frame_faults(turn)] if len(ends) == 1 and turn[-1]["outcome"] == "completed" else found


def _event_faults(recording: TurnRecording, adapter: Adapter, events: Sequence[EventBase]) -> Iterator[str]:
    cut = bool((recording.meta.model_extra or {}).get("cut"))  # the CLI itself lost the end of its last line
    for event in events:
        if isinstance(event, Unparsed) and not (cut and event.reason == "truncated"):
            yield f"a line is unparsed ({event.reason}): {event.excerpt}"
    for name in sorted({event.type for event in events} - set(adapter.capabilities.events)):
        yield f"an event {name}, which capabilities.events does not name"


def _unwritable(value: object) -> Iterator[str]:
    try:
        msgspec.json.encode(value)
    except Exception as error:
        yield f"a {type(value).__name__} cannot be written: {error}"


def _end_faults(ends: Sequence[Terminal], events: Sequence[EventBase]) -> Iterator[str]:
    if any(end.text for end in ends if end.is_error):
        yield "a failed turn has a text, which a program would take for the answer"
    told = {event.name for event in events if isinstance(event, PermissionDenied)}
    named = {name for end in ends for name in end.denied}
    if told != named:
        yield f"permission_denied events name {sorted(told)}, and the ends of turns {sorted(named)}"


def _chunk_faults(recording: TurnRecording, adapter: Adapter) -> Iterator[str]:
    one_by_one, by_chunk = (adapter.decoder(recording.carried, recording.request) for _ in range(2))
    lines = iter(recording.lines())
    found: list[Sequence[EventBase]] = []
    while (chunk := by_chunk.decode_chunk(lines)).told or chunk.line is not None:
        found += [events for _, events in chunk.told]
        found += [chunk.decoded.events] if chunk.decoded is not None else []
    for line, events in zip_longest(recording.lines(), found):
        if line is None or one_by_one.decode(line).events != events:
            yield "decode_chunk gives other events than decode"
            return


def _text_faults(events: Iterable[EventBase]) -> Iterator[str]:
    """Yield messages whose deltas were neither confirmed nor retracted: readers of deltas would see another text."""
    shown: dict[str | None, str] = {}
    whole: dict[str | None, str] = {}
    for event in events:
        if isinstance(event, ContentDelta) and event.kind == "text":
            shown[event.message_id] = shown.get(event.message_id, "") + event.text
        elif isinstance(event, AssistantMessage):
            text = "".join(block.text or "" for block in event.blocks if block.kind == "text")
            whole[event.message_id] = whole.get(event.message_id, "") + text
        elif isinstance(event, Retracted):
            shown.pop(event.message_id, None)
    for message, text in shown.items():
        if text != whole.get(message):
            yield f"the deltas of message {message} say {text!r}, the message says {whole.get(message)!r}"


def frame_faults(events: Sequence[Event]) -> list[str]:
    """Return what is wrong with the frame of a turn that ended well. A message may come whole, without start and stop."""
    found: list[str] = []
    started: set[str | None] = set()
    open_tools: set[str] = set()
    for event in events:
        name, message = event["type"], event.get("message_id")
        if name == "message_start":
            if message in started:
                found.append(f"message {message} starts twice")
            started.add(message)
        elif name in ("content_delta", "message_stop") and message not in started:
            found.append(f"{name} of message {message} before its start")
        elif name == "tool_use":
            if event["tool_use_id"] in open_tools:
                found.append(f"tool {event['tool_use_id']} is used twice")
            open_tools.add(event["tool_use_id"])
        elif name == "tool_result":
            if event["tool_use_id"] not in open_tools:
                found.append(f"a result of tool {event['tool_use_id']}, which is not open")
            open_tools.discard(event["tool_use_id"])
    stopped = {event.get("message_id") for event in events if event["type"] == "message_stop"}
    return found + [f"message {message} never stops" for message in started - stopped]


# Spoilt recordings

_DEEP: Any = 7
for _ in range(230):
    _DEEP = {"d": _DEEP}
_ODD: tuple[Any, ...] = (None, True, -1, 10**30, 1.5, "", "\ud83d", "\x00", [], {}, [None], {"": 0}, _DEEP)
_EVERY = 3  # one line of three is spoilt, so most lines behind it still reach the decoder's state


def spoilt_faults(recording: TurnRecording, adapter: Adapter) -> list[str]:
    """Return what a decoder does wrong with damaged lines: it must not raise, and its events and replies must be writable."""
    raw = [line.data for line in recording.lines()]
    found: dict[str, None] = {}
    for round_ in range(2 * len(_ODD)):
        data = b"".join(
            (_spoilt(one, round_ + at) if at % _EVERY == round_ % _EVERY else one) + b"\n" for at, one in enumerate(raw)
        )
        decoder = adapter.decoder(recording.carried, recording.request)
        for line in LineFramer().feed(data):
            try:
                decoded = decoder.decode(line)
            except Exception as error:
                found[f"decode raises {type(error).__name__} at {line.data[:200]!r}"] = None
                break
            found |= dict.fromkeys(_result_faults(decoded, line))
    return list(found)


def _spoilt(raw: bytes, turn: int) -> bytes:
    """Return the line with one value replaced by an odd one, without one field, or cut."""
    try:
        frame = json.loads(raw)
    except ValueError:
        return raw[: len(raw) // 2]
    places = list(_places(frame))
    if turn % 7 == 0 or not places:
        return (raw[: len(raw) // 2], raw[:-1] + b"\xff", b"[" + raw + b"]")[turn % 3]
    owner, key = places[(turn * 5) % len(places)]
    if turn % 4 == 0 and isinstance(owner, dict):
        del owner[key]
    else:
        owner[key] = _ODD[turn % len(_ODD)]
    return json.dumps(frame).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _result_faults(decoded: Decoded, line: Line) -> Iterator[str]:
    for value in (*decoded.events, *([decoded.terminal.error] if decoded.terminal else [])):
        yield from _unwritable(value)
    if any(isinstance(reply, str) and not reply.endswith("\n") for reply in decoded.replies):
        yield f"a reply without a newline at {line.data[:200]!r}"


# Stories


def story(recording: TurnRecording, adapter: Adapter) -> str:
    """Return a line for each line of the recording: the frame, and its result. Equal lines in a row are counted."""
    told: list[list[Any]] = []
    for line, result in zip_longest(recording.lines(), decode(recording, adapter)):
        names = [_event_name(event) for event in result.events]
        names += [_terminal_name(result.terminal)] if result.terminal else []
        names += ["SAYS " + (_said(reply) if isinstance(reply, str) else "the end") for reply in result.replies]
        text = f"{_frame_name(line) if line else 'the exit'} -> {', '.join(names) or '-'}"
        if told and told[-1][0] == text:
            told[-1][1] += 1
        else:
            told.append([text, 1])
    return "".join(f"{text}{f'  x{count}' if count != 1 else ''}\n" for text, count in told)


def _frame_name(line: Line) -> str:
    """Return the kind of frame, in the words of whichever CLI said it."""
    try:
        frame = json.loads(line.data)
    except ValueError:
        return "no JSON"
    places = (frame, frame.get("item"), frame.get("event"), frame.get("params"), frame.get("message"))
    parts = [_word(place) for place in places if isinstance(place, dict)]
    delta = (frame.get("event") or {}).get("delta") if isinstance(frame.get("event"), dict) else None
    name = "/".join(part for part in [*parts, _word(delta)] if part)
    return name or ("error answer" if "error" in frame else "answer" if "result" in frame else "?")


def _word(place: Any) -> str:
    if not isinstance(place, dict):
        return ""
    words = [place[key] for key in ("method", "type", "subtype", "sessionUpdate") if isinstance(place.get(key), str)]
    inner = [_word(place.get(key)) for key in ("item", "update")]
    return "/".join(word for word in [*words, *inner] if word and word != "message")


def _event_name(event: EventBase) -> str:
    """Return the type, and the one field that tells its kind."""
    detail = next((value for name in ("state", "status", "kind") if (value := getattr(event, name, None))), None)
    if isinstance(event, AssistantMessage):
        detail = "+".join(block.kind for block in event.blocks)
    return f"{event.type}({detail})" if detail else event.type


def _terminal_name(terminal: Terminal) -> str:
    kind = terminal.error.kind if terminal.error else "good"
    marks = [mark for mark, on in (("interrupted", terminal.interrupted), ("follow_up", terminal.follow_up)) if on]
    return "TERMINAL(" + ", ".join([kind, *marks, *_spent(terminal)]) + ")"


def _spent(terminal: Terminal) -> Iterator[str]:
    """Return the tokens and the cost of a turn. Cached input stands behind the fresh input."""
    usage = terminal.usage
    cached = "".join(
        f"+{count} {word}"
        for count, word in ((usage.cache_creation_input_tokens, "new"), (usage.cache_read_input_tokens, "cached"))
        if count
    )
    if usage.total_input_tokens is not None or usage.output_tokens is not None:
        yield f"{usage.input_tokens}{cached} in"
        yield f"{usage.output_tokens} out"
    if terminal.cost_usd is not None:
        yield f"${terminal.cost_usd:g}"


def _said(reply: str) -> str:
    frames = [json.loads(line) for line in reply.splitlines()]
    return "+".join(str(frame.get("method") or ("error" if "error" in frame else "result")) for frame in frames)

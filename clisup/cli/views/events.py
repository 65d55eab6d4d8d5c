"""Events and approvals in words: one short line for each type of event, and the whole input of an approval."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from clisup.cli.views.terminal import clip, cost, duration, size, tokens
from clisup.client.raw import JsonObject

__all__ = [
    "LINES",
    "WIDTH",
    "WORDS",
    "Event",
    "checked_event",
    "error_words",
    "event_line",
    "evidence_words",
    "question_lines",
    "steered_words",
    "tool_words",
    "visible",
    "words",
]

Event = JsonObject
"""Envelope of an event, or a gap, as it is on the wire."""

_MISSING = {"retention": "were removed by retention", "damaged": "cannot be read: the journal is damaged there"}
_EVIDENCE = {
    "answered": "its transcript holds the prompt and the beginning of an answer",
    "prompt_found": "its transcript holds the prompt, but no answer",
    "prompt_not_found": "its transcript does not hold the prompt",
    "missing": "it has no transcript of this session",
    "unreadable": "its transcript cannot be read",
}
_RESOLVED_BY = {
    "unattended": "no client was connected",
    "backend": "the CLI took it back",
    "end": "the turn is being ended",
    "exit": "the CLI is gone",
}
_TELLING = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt", "plan", "message")


def event_line(event: Event) -> str:
    """Return one line, as `2026-09-30 12:34:56.789  turn_started  t1  run 1: Say hello.`, in local time."""
    turn = event.get("turn_id") or "-"
    return (
        f"{_local(event.get('ts'))}  {clip(str(event['type']), 20):<18}  {clip(turn, 18):<4}  {words(event)}".rstrip()
    )


def checked_event(event: Event) -> Event:
    """Return an event of another daemon. Raise `KeyError`, `TypeError` or their like for what cannot be shown."""
    if not isinstance(event["session_id"], str) or not isinstance(event["type"], str):
        raise TypeError("ids and types are texts")
    event_line(event)
    return event


def words(event: Event) -> str:
    """Return the content of an event on one line, or "". An event of unknown type is shown as JSON."""
    describe = WORDS.get(event["type"])
    if describe is None:
        skip = ("session_id", "seq", "ts", "turn_id", "source", "type")
        return clip(json.dumps({k: v for k, v in event.items() if k not in skip}, ensure_ascii=False))
    return clip(describe(event), 200)


def tool_words(event: Event) -> str:
    """Return the name of a tool and its most telling argument."""
    given = event.get("input") or {}
    for name in _TELLING:
        if isinstance(given.get(name), str):
            return f"{event.get('name')} {given[name]}"
    questions = given.get("questions")
    if isinstance(questions, list) and questions and isinstance(questions[0], dict) and questions[0].get("question"):
        return f"{event.get('name')} {questions[0]['question']}"
    return f"{event.get('name')} {json.dumps(given, ensure_ascii=False)}" if given else str(event.get("name"))


def error_words(error: JsonObject | None) -> str:
    """Return `kind: message`, with the time of the next try if it is known."""
    if not error:
        return ""
    after = f" (try again in {duration(error['retry_after_s'])})" if error.get("retry_after_s") else ""
    until = f" (resets at {error['resets_at']})" if error.get("resets_at") else ""
    return f"{error.get('kind')}: {error.get('message')}{after}{until}"


def evidence_words(evidence: JsonObject | None) -> str:
    """Return what the CLI's transcript proves about a prompt of uncertain delivery."""
    return _EVIDENCE.get((evidence or {}).get("transcript", ""), "its transcript is unknown")


def _local(ts: str | None) -> str:
    if not ts:
        return "-" * 23
    return datetime.fromisoformat(ts).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _some(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _actor(actor: JsonObject | None) -> str | None:
    return f"by {actor.get('client') or 'a client'} (uid {actor['uid']}, pid {actor['pid']})" if actor else None


def _message(event: Event) -> str:
    return " ".join(_block(block) for block in event.get("blocks") or ()) + (
        " [by the CLI]" if event.get("synthetic") else ""
    )


def _block(block: JsonObject) -> str:
    if block["kind"] == "text":
        return str(block.get("text") or "")
    return f"[{tool_words(block)}]" if block["kind"] == "tool_use" else f"[{block['kind']}]"


def _tool_result(event: Event) -> str:
    head = "error: " if event.get("is_error") else ""
    return head + str(event.get("content") or "") + (" [cut]" if event.get("truncated") else "")


def _retry(event: Event) -> str:
    times = f"attempt {event.get('attempt', '?')} of {event.get('max_attempts', '?')}"
    return _some(times, f"in {duration(event.get('delay_s'))}", error_words(event.get("error")))


def _resolved(event: Event) -> str:
    rule = f"by rule {event['rule']}" if event.get("rule") else _RESOLVED_BY.get(event.get("by", ""))
    actor = _actor(event.get("actor"))
    return _some(f"{event['decision']} {event.get('tool_name') or ''}".strip(), rule, actor, event.get("message"))


def _rate_limit(event: Event) -> str:
    used = f"{event['utilization']:.0%} used" if event.get("utilization") is not None else None
    until = f"resets at {event['resets_at']}" if event.get("resets_at") else None
    return _some(event["status"], event.get("limit_type"), used, until)


def _watchdog(event: Event) -> str:
    idle = f"silent for {duration(event['idle_s'])}" if event.get("idle_s") is not None else None
    limit = f"limit {duration(event['limit_s'])}" if event.get("limit_s") else None
    return _some(f"{event['action']} in phase {event['phase']}", idle, limit)


def _exited(event: Event) -> str:
    how = f"signal {event['signal']}" if event.get("signal") else f"exit code {event.get('exit_code', 'unknown')}"
    left = f"{len(event['survivors'])} processes had outlived it" if event.get("survivors") else None
    return _some(how, f"ended by {event.get('ended_by')}", left, event.get("note"))


def _unparsed(event: Event) -> str:
    lines = f"{event['lines']} lines, " if event.get("lines") else ""
    return f"{event['reason']}, {lines}{size(event['bytes'])}: {event.get('excerpt') or ''}"


def _completed(event: Event) -> str:
    denied = f"denied: {', '.join(event['denied'])}" if event.get("denied") else None
    used = f"{tokens(event.get('usage'))} tokens"
    estimated = " (estimated)" if event.get("cost_source") == "estimated" else ""
    paid = cost(event["cost_usd"]) + estimated if event.get("cost_usd") is not None else None
    took = f"after {duration(event['duration_s'])}" if event.get("duration_s") is not None else None
    unsure = f"delivery uncertain ({evidence_words(event.get('evidence'))})" if event.get("delivery") else None
    return _some(event["outcome"], took, used, paid, denied, error_words(event.get("error")), unsure)


def _init(event: Event) -> str:
    tools = f"{len(event.get('tools') or ())} tools"
    return _some(
        event.get("model"), event.get("cwd"), tools, event.get("permission_mode"), event.get("backend_version")
    )


def steered_words(event: Event) -> str | None:
    """Return the words of a prompt that went into a running turn, or None for other prompts: `turn_started` has theirs."""
    if event["delivery"] != "steered":
        return None
    return _some(_images(event.get("images")), event.get("text")) or "a prompt whose words are not kept"


def _accepted(event: Event) -> str:
    place = f"at {event['position']}" if event.get("position") else None
    head = _some(event["delivery"], place, _actor(event.get("actor")))
    queued = _some(_images(event.get("images")), event.get("text")) if event["delivery"] == "queued" else ""
    said = steered_words(event) or queued
    return f"{head}: {said}" if said else head


def _images(count: int | None) -> str | None:
    return f"[{count} image{'s' if count > 1 else ''}]" if count else None


# fmt: off
WORDS: dict[str, Callable[[Event], str]] = {
    "session_init":       _init,
    "session_forked": lambda e: f"of {e['source_session_id']}" + (f", up to {e['at_turn']}" if e.get("at_turn") else ""),
    "session_seeded": lambda e: f"{e['messages']} messages",
    "prompt_accepted":    _accepted,
    "turn_started":       lambda e: f"run {e['run']}: {_some(_images(e.get('prompt_images')), e.get('prompt_preview'))}",
    "process_started":    lambda e: f"pid {e['pid']}: {' '.join(e.get('argv') or ())}",
    "message_start":      lambda e: e.get("model") or "",
    "content_delta":      lambda e: f"{e['kind']}: {e['text']}",
    "message":            _message,
    "tool_use":           tool_words,
    "tool_progress":      lambda e: _some(e.get("name"), duration(e.get("elapsed_s"))),
    "tool_result":        _tool_result,
    "permission_denied":  lambda e: _some(e["name"], e.get("reason")),
    "message_stop":       lambda e: _some(e.get("stop_reason"), f"{tokens(e.get('usage'))} tokens"),
    "retracted":          lambda e: _some(f"blocks from {e.get('from_index', 0)}", e.get("reason")),
    "usage":              lambda e: f"{tokens(e.get('usage'))} tokens",
    "rate_limit":         _rate_limit,
    "retry":              _retry,
    "task":               lambda e: _some(f"{e.get('kind') or 'task'} {e['state']}", e.get("description")),
    "approval_requested": lambda e: tool_words({**e, "name": e["tool_name"]}),
    "approval_resolved":  _resolved,
    "status":             lambda e: _some(e["status"], e.get("detail")),
    "stderr":             lambda e: e["text"],
    "watchdog":           _watchdog,
    "process_exited":     _exited,
    "turn_completed":     _completed,
    "unparsed":           _unparsed,
    "notice":             lambda e: f"{e['code']}: {e['message']}",
    "gap":                lambda e: f"events {e['from_seq']} to {e['to_seq']} {_MISSING.get(e.get('reason') or '', 'are missing')}",
}
# fmt: on


# -- approvals ----------------------------------------------------------------------------------------------------------

LINES = 40
"""Lines of an input that are shown at most."""

WIDTH = 400
"""Characters of a line of an input."""


def visible(text: str) -> str:
    """Return the text with every unprintable character escaped, such as control and direction characters."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def question_lines(approval: Event) -> list[str]:
    """Return the tool, the CLI's reason and the whole input of an approval. A last line says if the input is cut.

    Each line of a value begins with a bar, so that no input can look like the question itself.
    """
    head = f"approval: {visible(str(approval['tool_name']))[:WIDTH]}"
    reason = approval.get("reason")
    lines = [head + (f" ({visible(str(reason))[:WIDTH]})" if reason else "")]
    shown: list[str] = []
    whole = approval.get("blob") is None
    for name, value in (approval.get("input") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts = text.split("\n")
        whole = whole and all(len(part) <= WIDTH for part in parts)
        shown += [f"  {visible(str(name))[:WIDTH]}:", *(f"  | {visible(part[:WIDTH])}" for part in parts[: LINES + 1])]
    if len(shown) > LINES or not whole:
        return [*lines, *shown[:LINES], "  [cut: clisup approvals --json shows the whole input]"]
    return [*lines, *shown]

"""What a live process told, in words: the frames that both the demo and the real claude give, without what is of each one's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.e2e.dialogue import uuid_of

__all__ = ["told"]

Frame = dict[str, Any]
_NAMES = {uuid_of(name): name for name in ("one", "two", "three", "four")}


def told(frames: Iterable[Frame]) -> list[str]:
    """A line for each frame, apart from the deltas: its type, what it says of the turn, and which messages it names."""
    return [_words(frame) for frame in frames if frame["type"] != "stream_event"]


def _words(frame: Frame) -> str:
    kind = frame["type"]
    words = _SAYS.get(kind, lambda frame: [])(frame)
    words += [_NAMES[uuid] for uuid in frame.get("user_message_uuids", ())]
    words += [f"({_NAMES[frame['user_message_uuid']]})"] if frame.get("user_message_uuid") else []
    return " ".join([kind, *words])


def _system(frame: Frame) -> list[str]:
    return [frame["subtype"], *(str(frame[name]) for name in ("state", "status", "permissionMode") if name in frame)]


def _result(frame: Frame) -> list[str]:
    """The end of a turn. `error` stands for is_error, and `denied` for each denial."""
    marks = ["error"] if frame["is_error"] else []
    marks += ["denied"] * len(frame["permission_denials"])
    marks += [name for name in ("origin", "local_command") if frame.get(name)]
    return [frame["subtype"], str(frame.get("terminal_reason")), str(frame["result_index"]), *marks]


def _user(frame: Frame) -> list[str]:
    content = frame["message"]["content"]
    if isinstance(content, str):
        return ["replayed" if frame.get("isReplay") else "synthetic"]
    block = content[0]
    return [block["text"]] if block["type"] == "text" else ["tool_result", str(bool(block.get("is_error")))]


def _response(frame: Frame) -> list[str]:
    response = frame["response"]
    said = {
        key: value
        for key, value in (response.get("response") or {}).items()
        if key in ("still_queued", "cancelled", "mode")
    }
    names = [f"{key}={_named(value)}" for key, value in said.items()]
    return [response["request_id"], response["subtype"], *names, *filter(None, [response.get("error_code")])]


def _named(value: Any) -> str:
    return " ".join(_NAMES[uuid] for uuid in value) if isinstance(value, list) else str(value)


_SAYS = {
    "system": _system,
    "result": _result,
    "user": _user,
    "control_response": _response,
    "control_request": lambda frame: [frame["request"]["subtype"], frame["request"]["tool_name"]],
    "command_lifecycle": lambda frame: [_NAMES[frame["command_uuid"]], frame["state"]],
    "assistant": lambda frame: (
        [block["type"] for block in frame["message"]["content"]]
        + [name for name in ("aborted", "error") if frame.get(name)]
    ),
}

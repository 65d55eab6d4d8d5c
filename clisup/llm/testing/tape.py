"""What a recording of a model is: a line for each answer, with all that was asked and every event of it. Pure.

    {"format": "clisup-llm-recording", "version": 1}
    {"asked": {"system": null, "messages": [...], "tools": [...], "output_schema": null}, "events": [...], "end": "finished"}

`end` is `finished`, `failed` (then `error` has what was raised) or `left`. Additions do not change `version`: what a reader does not know
it passes over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from clisup.errors import UsageError
from clisup.llm import failures
from clisup.llm.chat import ChatOptions, StreamEvent
from clisup.llm.failures import Failed, LLMError
from clisup.llm.messages import Message

__all__ = ["FORMAT", "VERSION", "End", "Taped", "header_of", "read_tape", "request_of"]

FORMAT, VERSION = "clisup-llm-recording", 1
End = Literal["finished", "failed", "left"]
_EVENTS: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(StreamEvent)}
_ERROR_FIELDS = ("kind", "message", "hint", "retryable", "retry_after_s", "side_effects")


@dataclass(slots=True)
class Taped:
    """One answer. `asked` is its request as JSON: two that are equal were asked the same."""

    asked: dict[str, Any]
    events: list[StreamEvent] = field(default_factory=list)
    end: End = "left"
    error: LLMError | None = None

    def line(self) -> str:
        """For the file, with its newline."""
        told = [
            {"type": type(event).__name__, **_EVENTS[type(event).__name__].dump_python(event, mode="json")}
            for event in self.events
        ]
        line: dict[str, Any] = {"asked": self.asked, "events": told, "end": self.end}
        if self.error is not None:
            line["error"] = _dumped(self.error)
        return json.dumps(line, ensure_ascii=False) + "\n"


def header_of() -> str:
    """The first line of a recording."""
    return json.dumps({"format": FORMAT, "version": VERSION}) + "\n"


def request_of(
    options: ChatOptions, messages: Sequence[Message], output_schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What is asked, as JSON. Where it is asked (directory, labels, session params) makes no difference."""
    return {
        "system": options.system,
        "messages": [message.model_dump(mode="json") for message in messages],
        "tools": [{"name": tool.name, "input_schema": tool.input_schema} for tool in options.offered],
        "output_schema": None if output_schema is None else dict(output_schema),
    }


def read_tape(lines: Iterable[str], name: str) -> list[Taped]:
    """The answers of a recording; `name` is for errors. A last line that was cut is left out. Raises `UsageError`."""
    whole = [line for line in lines if line.endswith("\n")]
    try:
        if not whole:
            raise ValueError("there is no whole line in it")
        header, *records = [json.loads(line) for line in whole]
        if (header["format"], header["version"]) != (FORMAT, VERSION):
            raise UsageError(
                f"cannot replay {name}, because it is of format {header['format']!r}, version {header['version']}",
                hint=f"this version of clisup reads {FORMAT!r}, version {VERSION}: record it anew",
            )
        return [_read(record) for record in records]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"cannot replay {name}, because it is no recording of a model: {str(error)[:200]}",
            hint="make one with RecordingModel",
        ) from None


def _read(record: dict[str, Any]) -> Taped:
    events = [
        adapter.validate_python({key: value for key, value in told.items() if key != "type"})
        for told in record["events"]
        if (adapter := _EVENTS.get(told["type"]))
    ]
    error = record.get("error")
    return Taped(record["asked"], events, record["end"], None if error is None else _loaded(error))


def _dumped(error: LLMError) -> dict[str, Any]:
    data = json.loads(json.dumps(error.data, default=str))
    return {"class": type(error).__name__, **{name: getattr(error, name) for name in _ERROR_FIELDS}, "data": data}


def _loaded(told: dict[str, Any]) -> LLMError:
    kind = getattr(failures, told["class"], Failed)
    fields = {name: told[name] for name in _ERROR_FIELDS if name != "message"}
    error = (kind if isinstance(kind, type) and issubclass(kind, LLMError) else Failed)(told["message"], **fields)
    error.data = dict(told.get("data", {}))
    return error

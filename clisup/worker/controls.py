"""Control requests on stdin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from clisup.stream_json.frames import Frames
from clisup.worker import JsonObject
from clisup.worker.prompts import Prompt, WorkerQueue
from clisup.worker.tools.permissions import MODES
from clisup.worker.turn import TurnContext


class Controlled(Protocol):
    """Process that control requests change."""

    frames: Frames
    queue: WorkerQueue

    @property
    def context(self) -> TurnContext:
        """Return the parts that all turns share."""

    def lifecycle(self, prompt: Prompt, state: str) -> None:
        """Report the state of a message."""

    def interrupt(self) -> None:
        """End the running turn."""

    def end(self) -> None:
        """End the process."""


def carry_out(process: Controlled, request: Mapping[str, Any]) -> JsonObject:
    """Carry out a request, and return the answer. An answer with `error` is a refusal."""
    match request.get("subtype"):
        case "interrupt":
            return _interrupt(process, cancel_queued=request.get("cancel_queued") is True)
        case "cancel_async_message":
            withdrawn = process.queue.withdraw(request.get("message_uuid"))
            if withdrawn is not None:
                process.lifecycle(withdrawn, "cancelled")
            return {"cancelled": withdrawn is not None}
        case "set_model" if isinstance(model := request.get("model"), str) and model:
            context = process.context
            context.request = replace(context.request, model=model, by_tool=False)
            process.frames.model = model
            return {"model": model}
        case "set_permission_mode" if (mode := request.get("mode")) in MODES:
            process.context.permissions.mode = str(mode)
            return {"mode": mode}
        case "set_model" | "set_permission_mode":
            return {"error": f"invalid value of {request['subtype']}"}
        case "end_session":
            process.end()
            return {}
    message = f"Unsupported control request subtype: {request.get('subtype')}"
    return {"error": message, "error_code": "unsupported_request"}


def _interrupt(process: Controlled, *, cancel_queued: bool) -> JsonObject:
    process.interrupt()
    if not cancel_queued:
        return {"still_queued": process.queue.uuids()}
    cancelled = process.queue.take_all()
    for prompt in cancelled:
        process.lifecycle(prompt, "cancelled")
    return {"still_queued": [], "cancelled": [prompt.uuid for prompt in cancelled if prompt.uuid]}

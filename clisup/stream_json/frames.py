"""Shapes of claude's stream-json frames, from recordings of 2.1.329.

The functions are pure apart from the random uuid and the time in a frame. Frames leave out fields that no reader uses.
"""

from __future__ import annotations

import time
from typing import Any

from clisup.stream_json.transcript import new_id

__all__ = ["Frame", "Frames", "now", "token_usage"]

Frame = dict[str, Any]
CAPABILITIES = ("interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1")
"""Abilities of a live process that older versions of claude lack."""

_SYNTHETIC_FIELDS: Frame = {
    "diagnostics": None, "container": None, "role": "assistant", "stop_details": None, "stop_reason": "stop_sequence",
    "stop_sequence": "", "type": "message", "context_management": None,
}  # fmt: skip


def token_usage(input_tokens: int, output_tokens: int) -> Frame:
    """Return the usage of one model message without cached tokens."""
    return {
        "input_tokens": input_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
    }  # fmt: skip


class Frames:
    """Builder of one session's frames."""

    def __init__(self, session_id: str, model: str) -> None:
        self._session_id = session_id
        self.model = model

    def lifecycle(self, command_uuid: str, state: str) -> Frame:
        return {"type": "command_lifecycle", "command_uuid": command_uuid, "state": state, "uuid": new_id(),
                "session_id": self._session_id}  # fmt: skip

    def init(
        self,
        *,
        cwd: str,
        permission_mode: str,
        mcp_servers: list[Frame],
        tools: list[str],
        version: str,
        key: str = "none",
    ) -> Frame:
        """Return the frame that begins a turn. `key` names the source of the API key."""
        return self.system(
            "init", cwd=cwd, tools=tools, mcp_servers=mcp_servers, model=self.model, permissionMode=permission_mode,
            slash_commands=[], terminal_slash_commands=[], apiKeySource=key, claude_code_version=version,
            output_style="default", agents=[], skills=[], plugins=[], capabilities=list(CAPABILITIES), original_cwd=cwd,
            additional_directories=[], fast_mode_state="off",
        )  # fmt: skip

    def system(self, subtype: str, **fields: Any) -> Frame:
        return {"type": "system", "subtype": subtype, **fields, "session_id": self._session_id, "uuid": new_id()}

    def stream(self, event: Frame, message_id: str | None, **fields: Any) -> Frame:
        frame: Frame = {"type": "stream_event", "event": event, "session_id": self._session_id, "parent_tool_use_id": None,
                        "uuid": new_id(), **fields}  # fmt: skip
        if message_id is not None:
            frame["api_message_id"] = message_id
        return frame

    def message_start(self, message_id: str, usage: Frame) -> Frame:
        message: Frame = {"id": message_id, "type": "message", "role": "assistant", "model": self.model, "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
        return self.stream({"type": "message_start", "message": message}, message_id, ttft_ms=1)

    def assistant(self, message_id: str, block: Frame, usage: Frame, **fields: Any) -> Frame:
        message = {"id": message_id, "type": "message", "role": "assistant", "model": self.model, "content": [block],
                   "stop_reason": None, "stop_sequence": None, "usage": usage, "context_management": None}  # fmt: skip
        return self._message("assistant", message, **fields)

    def synthetic(self, text: str, **fields: Any) -> Frame:
        """Return a message of the CLI itself about an error of the API."""
        message = {"id": new_id(), "model": "<synthetic>", "usage": token_usage(0, 0), **_SYNTHETIC_FIELDS,
                   "content": [{"type": "text", "text": text}]}  # fmt: skip
        return self._message("assistant", message, **fields)

    def user(self, content: list[Frame], **fields: Any) -> Frame:
        return self._message("user", {"role": "user", "content": content}, **fields)

    def replayed(self, text: str) -> Frame:
        """Return the output of a command of the CLI itself."""
        return self._message("user", {"role": "user", "content": text}, isReplay=True)

    def tool_progress(self, tool_id: str, count: int, name: str, elapsed_s: float) -> Frame:
        """Return progress frame number `count`. The frame has its own id, and the call's id is its parent."""
        return {"type": "tool_progress", "tool_use_id": f"{tool_id}-heartbeat-{count}", "tool_name": name,
                "parent_tool_use_id": tool_id,
                "elapsed_time_seconds": elapsed_s, "heartbeat": True, "session_id": self._session_id,
                "uuid": new_id()}  # fmt: skip

    def rate_limit(self, **info: Any) -> Frame:
        return {"type": "rate_limit_event", "rate_limit_info": info, "uuid": new_id(), "session_id": self._session_id}

    def result(self, *, usage: Frame, **fields: Any) -> Frame:
        """Return the result of a turn. As in claude, the keys do not begin with `type`."""
        whole_usage = {**usage, "output_tokens_details": {"thinking_tokens": 0}, "service_tier": "standard",
                       "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}}  # fmt: skip
        return {"stop_reason": None, "session_id": self._session_id, "usage": whole_usage, "permission_denials": [],
                **fields, "type": "result", "uuid": new_id(), "queued_turn_count": 0}  # fmt: skip

    def _message(self, kind: str, message: Frame, **fields: Any) -> Frame:
        return {"type": kind, "message": message, "parent_tool_use_id": None, "session_id": self._session_id,
                "uuid": new_id(), "timestamp": now(), **fields}  # fmt: skip


def now() -> str:
    """Return the time in the form of claude's timestamps."""
    at = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"

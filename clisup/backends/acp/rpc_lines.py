"""Lines of JSON-RPC between clisup and an ACP agent, and the params of a prompt. Pure."""

from __future__ import annotations

import json

from clisup.backends.acp.updates import CHUNKS
from clisup.backends.base import LaunchRequest
from clisup.backends.frames import Frame, decode_any, get_dict, get_str, mend
from clisup.model.lines.framing import Line
from clisup.model.prompts.content import Content, Image

__all__ = ["prompt_params", "prompt_request", "read_frame", "request_text"]


def request_text(number: int | str | None, method: str, params: Frame) -> str:
    """Return one line: a request, or a notification if `number` is None."""
    head: Frame = {"jsonrpc": "2.0"} if number is None else {"jsonrpc": "2.0", "id": number}
    return json.dumps(head | {"method": method, "params": params}) + "\n"


def read_frame(line: Line) -> Frame | None:
    """Return the line's JSON object, with broken characters replaced.

    A text chunk keeps its halves of surrogate pairs: the other half may come with the next chunk.
    """
    try:
        value = decode_any(line.data)
    except (ValueError, RecursionError):
        try:
            value = decode_any(mend(line.data))
            _keep_halves(value, line.data)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _keep_halves(value: object, data: bytes) -> None:
    update = get_dict(get_dict(value, "params"), "update") if isinstance(value, dict) else {}
    if get_str(update, "sessionUpdate") in CHUNKS and "text" in get_dict(update, "content"):
        raw = json.loads(data.decode("utf-8", "replace"))
        update["content"]["text"] = raw["params"]["update"]["content"]["text"]


def prompt_params(session: str | None, prompt: Content) -> Frame:
    """Return the params of session/prompt."""
    return {"sessionId": session, "prompt": [_block(part) for part in prompt]}


def prompt_request(request: LaunchRequest) -> str:
    """Return the id of session/prompt for a later turn of a live process. It names the prompt."""
    return f"prompt-{request.prompt_id}"


def _block(part: str | Image) -> Frame:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "mimeType": part.media_type, "data": part.data}

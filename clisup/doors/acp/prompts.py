"""Content blocks of an editor's prompt as a prompt for the daemon. Pure.

Text and links are joined as they stand, and the texts of embedded resources follow, each with its address.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clisup.client.raw import JsonObject
from clisup.errors import UsageError

__all__ = ["MAX_BLOCKS", "EditorCommand", "command_of", "prompt_of"]

MAX_BLOCKS = 1000
"""Content blocks of one prompt at most."""

_NAME = re.compile(r"[A-Za-z][\w:-]*")  # of a command: a path is text


class EditorCommand(NamedTuple):
    """Prompt that is a command: `/name words`."""

    name: str
    words: str


def command_of(prompt: list[JsonObject]) -> EditorCommand | None:
    """Return the command that a prompt is, or None. Only a text alone can be one."""
    if len(prompt) != 1 or prompt[0]["type"] != "text" or not prompt[0]["text"].startswith("/"):
        return None
    words = prompt[0]["text"][1:].split(maxsplit=1)
    if not words or not _NAME.fullmatch(words[0]):
        return None
    return EditorCommand(words[0], words[1].strip() if len(words) > 1 else "")


def prompt_of(blocks: list[JsonObject]) -> list[JsonObject]:
    """Return the blocks of `session/prompt` of the daemon. Raises `UsageError(invalid_params)` for a block it cannot take."""
    if len(blocks) > MAX_BLOCKS:
        raise _refused(f"it has more than {MAX_BLOCKS} blocks")
    prompt: list[JsonObject] = []
    resources: list[JsonObject] = []
    for number, block in enumerate(blocks, 1):
        if not isinstance(block, dict):
            raise _refused(f"block {number} is not an object")
        _add(prompt, resources, block, number)
    return [part for part in [*prompt, *resources] if part["type"] != "text" or part["text"].strip()]


def _add(prompt: list[JsonObject], resources: list[JsonObject], block: JsonObject, number: int) -> None:
    match block:
        case {"type": "text", "text": str(text)}:
            _add_text(prompt, text)
        case {"type": "resource_link", "uri": str(uri)}:
            _add_text(prompt, _link(uri, block.get("name")))
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            _add_text(prompt, _link(uri, None))
            resources.append({"type": "text", "text": f'\n<context ref="{uri}">\n{text}\n</context>'})
        case {"type": "resource", "resource": {"blob": str(data), "mimeType": str(kind)}} if kind.startswith("image/"):
            prompt.append({"type": "image", "media_type": kind, "data": data})
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            prompt.append({"type": "image", "media_type": kind, "data": data})
        case {"type": "resource" | "audio" as kind}:
            raise _refused(f"block {number} is {'audio' if kind == 'audio' else 'a binary resource'}")
        case _:
            raise _refused(f"block {number} is of no known form")


def _add_text(prompt: list[JsonObject], text: str) -> None:
    if prompt and prompt[-1]["type"] == "text":
        prompt[-1]["text"] += text
    else:
        prompt.append({"type": "text", "text": text})


def _link(uri: str, name: object) -> str:
    """Return a link in Markdown. A file has its path, which the CLI's tools can open."""
    target = uri.removeprefix("file://") if uri.startswith("file:///") else uri
    words = name if isinstance(name, str) and name else target.rstrip("/").rpartition("/")[2] or target
    return f"[@{words}]({target})"


def _refused(reason: str) -> UsageError:
    return UsageError(
        f"cannot send the prompt, because {reason}", hint="send text, links, text resources and images", param="prompt"
    )

"""Prompts for claude's stdin, as text or as a line of `--input-format stream-json`. Pure.

By default a prompt is text for the model. Measured with claude 2.1.329, in `-p` and in stream-json alike:

- The CLI looks for a slash command at the very beginning of a string, or of the last text block of a message. A newline before
  the slash hides the command. The CLI merges waiting messages, so any block may become the last: each block that begins with a
  slash gets a newline.
- `@agent-NAME` and `@"NAME (agent)"` make the CLI tell the model to call that agent, in every environment. A zero-width space
  behind the @ hides the mention.
- The CLI ignores `@path` under CLAUDE_CODE_DISABLE_FILE_MENTIONS, which the adapter sets.
- `!command`, `#note`, `$NAME` and `{{name}}` are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from clisup.model.prompts.content import Content, Image

__all__ = ["as_text", "user_message"]

# The @ comes first and the lookbehind after it: such an expression is six times as fast.
_AGENT = re.compile(r'@(?=agent-|"[\w:.@-]+ \(agent\)")(?<![^\s\ufeff\u3002\u3001\uff1f\uff01]@)')
_HIDDEN = "@\u200b"
_NEWLINE_ADDED = "newline before a leading slash"
_AGENT_HIDDEN = "zero-width space in each mention of an agent"


def as_text(prompt: str, *, expand: bool = False) -> tuple[str, str | None]:
    """Return the prompt as plain text for the CLI, and a description of the changes. `expand` changes nothing."""
    if expand:
        return prompt, None
    (text,), altered = _masked([prompt])
    return text, altered


def user_message(content: str | Content, *, uuid: str | None = None, expand: bool = False) -> tuple[str, str | None]:
    """Return one line for `--input-format stream-json` with its newline, and a description of the changes to the text.

    Texts and images keep their order. The CLI names the message by `uuid` in `command_lifecycle` and in the frames of its turn.
    """
    parts = [content] if isinstance(content, str) else list(content)
    altered = None
    if not expand:
        texts, altered = _masked([part for part in parts if isinstance(part, str)])
        masked = iter(texts)
        parts = [next(masked) if isinstance(part, str) else part for part in parts]
    body = parts[0] if isinstance(content, str) else [_block(part) for part in parts]
    message = {"type": "user", "message": {"role": "user", "content": body}}
    line = message if uuid is None else message | {"uuid": uuid}
    return json.dumps(line, ensure_ascii=True) + "\n", altered


def _block(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}


def _masked(texts: Sequence[str]) -> tuple[list[str], str | None]:
    shown = [_AGENT.sub(_HIDDEN, text) for text in texts]
    done = [_AGENT_HIDDEN] if shown != list(texts) else []
    if any(text.startswith("/") for text in shown):
        done.insert(0, _NEWLINE_ADDED)
    return ["\n" + text if text.startswith("/") else text for text in shown], " and a ".join(done) or None

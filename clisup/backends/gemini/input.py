"""Prompts for gemini's stdin, and prompts in its transcript. Pure.

By default a prompt is text for the model. Measured with gemini 0.61.0, the prompt on stdin:

- A slash as the very first character makes the prompt a command. A newline before the slash hides the command.
- gemini replaces `@path` by the text of that file, anywhere in the prompt. A backslash before the @ prevents this.
- `!command`, `!{command}`, `#note`, `$NAME` and `{{args}}` are text.
"""

from __future__ import annotations

import re
from itertools import count

from clisup.backends.base import LaunchRequest
from clisup.backends.launch import check_prompt
from clisup.errors import UsageError
from clisup.model.prompts.content import Content, Image

__all__ = ["escaped", "image_flags", "stdin_of", "typed"]

# The pattern of handleAtCommand (0.61.0). A backslash before the @ is gemini's own escape.
# The @ comes first and the lookbehind after it: such an expression is six times as fast.
_MENTION = re.compile(r"@(?<!\\@)(?=[^ \t\n\r,;!?()\[\]{}.]|\.(?![ \t\n\r]|\Z))")
_NEWLINE_ADDED = "newline before a leading slash"
_ESCAPED = "backslash before each @ that could name a file"
_NAMED = "mention of its file in the place of each image"
_PATH_END = re.compile(
    r"(?=[ \t\\,;!?()\[\]{}])"
)  # characters that end a path behind an @, without a backslash before them
_IMAGE_MENTION = re.compile(r"^ ?@(?:.*/)?image-\d+\.(?:png|jpg|gif|webp)$", re.MULTILINE)
_FILES_BEGIN = "\n--- Content from referenced files ---"
_BACKSLASH = r"\\"


def stdin_of(request: LaunchRequest) -> tuple[str, str | None]:
    """Return the prompt for the CLI, and a description of the changes: a leading slash would be a command, `@x` a file.

    An image becomes a file that the text mentions. gemini puts the images behind the text.
    """
    check_prompt("gemini", request.prompt)
    numbers = count(1)
    parts = [
        part if isinstance(part, str) else f"@{_PATH_END.sub(_BACKSLASH, _image_path(request, part, next(numbers)))}"
        for part in _texts_escaped(request)
    ]
    text = "\n".join(parts)
    hidden = not request.expand and text.startswith("/")
    sent = "\n" + text if hidden else text
    done = {
        _NEWLINE_ADDED: hidden,
        _ESCAPED: not request.expand and _MENTION.search(request.prompt) is not None,
        _NAMED: bool(request.images),
    }
    return sent, " and a ".join(what for what, on in done.items() if on) or None


def image_flags(request: LaunchRequest) -> tuple[str, ...]:
    """Return the flag that adds the directory of the images to the workspace: gemini reads no mentioned file elsewhere."""
    if not request.images:
        return ()
    if "," in request.scratch:
        raise UsageError(
            f"cannot show gemini an image, because it would take the comma in {request.scratch} for the end of a directory",
            kind="unsupported",
            hint="take a daemon.state_dir without a comma",
        )
    return (f"--include-directories={request.scratch}",)


def _texts_escaped(request: LaunchRequest) -> Content:
    content = request.content or (request.prompt,)
    if request.expand:
        return content
    return tuple(_MENTION.sub(r"\\@", part) if isinstance(part, str) else part for part in content)


def _image_path(request: LaunchRequest, image: Image, number: int) -> str:
    return f"{request.scratch}/{image.file_name(number)}"


def escaped(prompt: str) -> str:
    text = _MENTION.sub(r"\\@", prompt)
    return "\n" + text if text.startswith("/") else text


def typed(text: str) -> str:
    """Return the prompt in a transcript's text, without images and without gemini's own text for them."""
    return _IMAGE_MENTION.sub("", text.partition(_FILES_BEGIN)[0])

"""Units as `clisup install` writes them: the shipped text with the path of this clisup, and a sum that shows later
edits.

Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

__all__ = ["Standing", "standing_of", "unit_text", "unit_word"]

Standing = Literal["new", "same", "older", "edited"]
"""State of an existing unit file: none, identical, written by an earlier install, or edited by a user."""

_COMMAND = re.compile(r"^(Exec(?:Start|Reload)=)(?:%h|/opt)\S*/bin/clisup\b", re.MULTILINE)
_HEADER = re.compile(r"# Written by `clisup install`[^\n]*\n# [^\n]*sum ([0-9a-f]{16})\n")


def unit_word(text: str) -> str:
    """Return a path as the first word of `ExecStart=` (systemd.service(5), command lines): quoted, with % and $
    escaped."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", text) else plain


def unit_text(shipped: str, executable: str, version: str, replaced: dict[str, str] | None = None) -> str:
    """Return the file to write. `replaced` maps whole lines of the shipped text to their replacements."""
    body = _COMMAND.sub(lambda match: match[1] + unit_word(executable), shipped)
    for line, other in (replaced or {}).items():
        body = body.replace(f"\n{line}\n", f"\n{other}\n")
    return (
        f"# Written by `clisup install` of clisup {version}. Own settings belong into a drop-in (systemctl edit): an edit here\n"
        f"# stops the next install, which tells it by the sum {_sum(body)}\n{body}"
    )


def standing_of(found: str | None, wanted: str, shipped: str) -> Standing:
    """Return how `found` relates to `wanted`. Only an `edited` file must not be replaced.

    An unchanged copy of the shipped file counts as `older`.
    """
    if found is None:
        return "new"
    if found == wanted:
        return "same"
    header = _HEADER.match(found)
    ours = found == shipped or (header is not None and _sum(found[header.end() :]) == header[1])
    return "older" if ours else "edited"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]

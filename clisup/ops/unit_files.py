"""The units as `clisup install` writes them: the shipped text with the path of this clisup, and a sum that shows later edits. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

__all__ = ["Standing", "standing_of", "unit_text", "unit_word"]

Standing = Literal["new", "same", "older", "edited"]
"""What is there already: nothing, exactly this, what an earlier install wrote, or somebody's own."""

_COMMAND = re.compile(r"^(Exec(?:Start|Reload)=)(?:%h|/opt)\S*/bin/clisup\b", re.MULTILINE)
_HEADER = re.compile(r"# Written by `clisup install`[^\n]*\n# [^\n]*sum ([0-9a-f]{16})\n")


def unit_word(text: str) -> str:
    """A path as the first word of `ExecStart=` (systemd.service(5), command lines): quoted, no specifier and no variable in it."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if re.search(r"[\s\"'\\;]", text) else plain


def unit_text(shipped: str, executable: str, version: str, replaced: dict[str, str] | None = None) -> str:
    """The file to be written. `replaced` are whole lines of the shipped text and what stands for them."""
    body = _COMMAND.sub(lambda match: match[1] + unit_word(executable), shipped)
    for line, other in (replaced or {}).items():
        body = body.replace(f"\n{line}\n", f"\n{other}\n")
    return (
        f"# Written by `clisup install` of clisup {version}. Own settings belong into a drop-in (systemctl edit): an edit here\n"
        f"# stops the next install, which tells it by the sum {_sum(body)}\n{body}"
    )


def standing_of(found: str | None, wanted: str, shipped: str) -> Standing:
    """May `found` be replaced by `wanted`? A file that was copied by hand and never changed may."""
    if found is None:
        return "new"
    if found == wanted:
        return "same"
    header = _HEADER.match(found)
    ours = found == shipped or (header is not None and _sum(found[header.end() :]) == header[1])
    return "older" if ours else "edited"


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]

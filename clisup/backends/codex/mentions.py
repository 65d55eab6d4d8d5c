"""Mentions of skills in a prompt for codex: `$name`, and `[$name](path)`. Pure.

codex 0.169.0 puts the whole SKILL.md of a skill that a prompt mentions beside the prompt, the repository's own skills too and
in a directory that is marked as untrusted; no setting turns that off (measured: `skills.include_instructions`,
`skills.bundled.enabled`, feature flags). Nothing else in a prompt is a command: `/name`, `@path`, `!command`, `{{name}}` and
`/prompts:name` are text. Both ways out were measured as well:

- `skills.config` switches a skill off by its name, for one run, beside the rules of the user's own settings. The prompt stays
  as it is, so `$HOME` in shell code does too; but the names must not stand in argv.
- A character that no name has behind the `$`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from clisup.model.prompts.content import Content

__all__ = ["Said", "hidden", "switched_off"]

_MENTION = re.compile(r"\$(?=[A-Za-z0-9_:-])")
_LINK = re.compile(r"\[\$(?=[A-Za-z0-9_:-])")
_NAME = re.compile(r"\$([A-Za-z0-9_:-]+)")
_MARK = "\u200b"
_HIDDEN = "zero-width space in each {} that could name a skill"
_MOST_RULES = 500


class Said(NamedTuple):
    """A prompt as codex is to get it, entries of `skills.config` for the run, and what was done to the text."""

    content: Content
    rules: list[dict[str, Any]]
    altered: str | None


def hidden(content: Content) -> Said:
    """Without a mention in the text: for a run whose settings stand in argv, where no word of a prompt may be."""
    shown = _sub(_MENTION, f"${_MARK}", content)
    return Said(shown, [], _HIDDEN.format("$name") if shown != content else None)


def switched_off(content: Content) -> Said:
    """The skills that the text mentions by name are off; a link, which names a skill by its file, is hidden."""
    shown = _sub(_LINK, f"[${_MARK}", content)
    names = dict.fromkeys(name for part in shown if isinstance(part, str) for name in _NAME.findall(part))
    if len(names) > _MOST_RULES:
        return hidden(content)
    rules = [{"name": name, "enabled": False} for name in names]
    return Said(shown, rules, _HIDDEN.format("[$name](path)") if shown != content else None)


def _sub(pattern: re.Pattern[str], by: str, content: Content) -> Content:
    return tuple(pattern.sub(by, part) if isinstance(part, str) else part for part in content)

"""Mentions of skills in a prompt for codex: `$name`, and `[$name](path)`. Pure.

codex 0.169.0 adds the whole SKILL.md of each mentioned skill to the prompt, also for skills of the repository and in an untrusted
directory. No setting turns that off (measured: `skills.include_instructions`,
`skills.bundled.enabled`, feature flags). Nothing else in a prompt is a command: `/name`, `@path`, `!command`, `{{name}}` and
`/prompts:name` are text. Both ways out are measured:

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
    """Prompt for codex, entries of `skills.config` for the run, and a description of the changes to the text."""

    content: Content
    rules: list[dict[str, Any]]
    altered: str | None


def hidden(content: Content) -> Said:
    """Return the prompt with hidden mentions, for runs with settings in argv, where no word of a prompt may stand."""
    shown = _sub(_MENTION, f"${_MARK}", content)
    return Said(shown, [], _HIDDEN.format("$name") if shown != content else None)


def switched_off(content: Content) -> Said:
    """Return the prompt with its named skills switched off. A link, which names a skill by its file, is hidden."""
    shown = _sub(_LINK, f"[${_MARK}", content)
    names = dict.fromkeys(name for part in shown if isinstance(part, str) for name in _NAME.findall(part))
    if len(names) > _MOST_RULES:
        return hidden(content)
    rules = [{"name": name, "enabled": False} for name in names]
    return Said(shown, rules, _HIDDEN.format("[$name](path)") if shown != content else None)


def _sub(pattern: re.Pattern[str], by: str, content: Content) -> Content:
    return tuple(pattern.sub(by, part) if isinstance(part, str) else part for part in content)

"""Options of an approval: the answers that an ACP agent offers, each with an id, a name and a kind. Pure.

The kinds of the protocol are `allow_once`, `allow_always`, `reject_once` and `reject_always`. Agents use such options for
questions too (plans, targets, network scopes): then several allow, or the kinds are unknown, and a plain `allow` says too little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["ApprovalOption", "needs_choice", "options_of"]

_ALLOWS = ("allow_once", "allow_always")
_DENIES = ("reject_once", "reject_always")
_MOST = 50
_REFUSALS = re.compile(r"(reject|deny|decline|refuse|cancel|abort|no)\b", re.IGNORECASE)


class ApprovalOption(NamedTuple):
    """One option. `label` is its name, with the id if another option has the same name."""

    id: str
    label: str
    kind: str
    decision: Literal["allow", "deny"]

    @property
    def has_known_kind(self) -> bool:
        """Tell whether the kind is one of the protocol."""
        return self.kind in _ALLOWS or self.kind in _DENIES


def options_of(suggestions: Iterable[Mapping[str, Any]]) -> tuple[ApprovalOption, ...]:
    """Return the options among the suggestions of an approval. Other CLIs suggest rules, which are no options."""
    found = [given for given in suggestions if isinstance(given.get("optionId"), str) and given["optionId"]][:_MOST]
    names = [str(given.get("name") or given["optionId"]) for given in found]
    count = Counter(names)
    return tuple(_option(given, name, unique=count[name] == 1) for given, name in zip(found, names, strict=True))


def _option(given: Mapping[str, Any], name: str, *, unique: bool) -> ApprovalOption:
    kind, id_ = str(given.get("kind") or ""), given["optionId"]
    denies = kind in _DENIES or (kind not in _ALLOWS and (_REFUSALS.match(name) or _REFUSALS.match(id_)))
    return ApprovalOption(id_, name if unique else f"{name} ({id_})", kind, "deny" if denies else "allow")


def needs_choice(options: Iterable[ApprovalOption]) -> bool:
    """Tell whether a plain `allow` leaves open which option is meant."""
    kinds = [option.kind for option in options if option.decision == "allow"]
    return kinds.count("allow_once") > 1 or (bool(kinds) and not set(kinds) & set(_ALLOWS))

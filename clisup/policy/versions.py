"""Version ranges as in the configuration: `>=2.1.197,<3`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from clisup.errors import ConfigurationError

_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*$")
_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def version_key(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without trailing zeros, for comparing."""
    match = re.match(r"\d+(?:\.\d+)*", version.strip())
    parts = [int(part) for part in match.group().split(".")] if match else [0]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def in_range(version: str, wanted: str) -> bool:
    """Tell whether `version` is inside the range.

    An empty range takes all. Raises `ConfigurationError` for an invalid range.
    """
    # parse all clauses before any is judged
    clauses = [_clause(part.strip(), wanted) for part in wanted.split(",") if part.strip()]
    return all(_OPERATORS[compare](version_key(version), version_key(bound)) for compare, bound in clauses)


def newer_than(version: str | None, newest: str) -> str | None:
    """Return `newest` if the version is known and newer than it. An empty `newest` is newer than everything."""
    return newest if newest and version is not None and version_key(version) > version_key(newest) else None


def _clause(text: str, wanted: str) -> tuple[str, str]:
    match = _CLAUSE.match(text)
    if match is None:
        raise ConfigurationError(
            f"cannot read the version range {wanted!r}, because of {text!r}", hint="write it like '>=2.1.197,<3'"
        )
    return match[1], match[2]

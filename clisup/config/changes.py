"""Changes between two configurations, and the part of them that a running daemon can apply. Pure.

Only keys leave this module, never values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, SecretStr

from clisup.config.keys import KEYS, Effect, key_of, quoted
from clisup.config.model import Config

__all__ = ["SECRET", "Change", "changes", "flat", "kept_back"]

What = Literal["changed", "added", "removed"]
SECRET = "[set]"
"""Replacement for a secret's value."""


class Change(NamedTuple):
    """Change of a key: the kind of change, and when it takes effect."""

    key: str
    what: What
    effect: Effect


def flat(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every (key, value) of a configuration or a table of it, in the model's order; secrets as `SecretStr`.

    A list of rules is one value: a list of mappings without the omitted keys. An empty `env` is one value; otherwise
    each name in `env` is a key. A key without a value and without a default is left out.
    """
    for name in type(table).model_fields:
        if (value := getattr(table, name)) is not None:
            yield from _flat(value, f"{prefix}{name}")


def _flat(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        yield from flat(value, f"{key}.")
    elif isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _flat(one, f"{key}.{quoted(name)}")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        yield key, [rule.model_dump(exclude_none=True, exclude_defaults=True) for rule in value]
    elif key != "prices":  # without a pattern, `prices` holds no key
        yield key, value


def changes(old: Config, new: Config) -> list[Change]:
    """Return every key whose value differs, in the order of the new configuration.

    An added or removed backend is one change.
    """
    before, after = dict(flat(old)), dict(flat(new))
    come, gone = set(new.backends) - set(old.backends), set(old.backends) - set(new.backends)
    found = [Change(f"backends.{name}", "added", "at_once") for name in new.backends if name in come]
    found += [Change(f"backends.{name}", "removed", "at_once") for name in old.backends if name in gone]
    for key in [*after, *(key for key in before if key not in after)]:
        backend = key.split(".")[1] if key.startswith("backends.") else None
        row = key_of(key)
        empty = key.endswith((".env", ".env_files", ".headers")) and (before.get(key) == {} or after.get(key) == {})
        if backend in come or backend in gone or row is None or empty:  # the names in the table are reported instead
            continue
        if key not in before or key not in after:
            found.append(Change(key, "added" if key in after else "removed", row.effect))
        elif not _same(before[key], after[key]):
            found.append(Change(key, "changed", row.effect))
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, SecretStr) and isinstance(other, SecretStr):
        return one.get_secret_value() == other.get_secret_value()
    return bool(one == other)


def kept_back(old: Config, new: Config) -> Config:
    """Return the new configuration, but with the old values of keys that cannot change while the daemon runs."""
    stay: dict[str, dict[str, Any]] = {}
    for key, row in KEYS.items():
        if row.effect == "start":
            table, name = key.split(".")
            stay.setdefault(table, {})[name] = getattr(getattr(old, table), name)
    return new.model_copy(update={t: getattr(new, t).model_copy(update=kept) for t, kept in stay.items()})

"""A program's own names for models: `register("fast", ["claude/haiku", "groq/llama"])`, then `resolve("fast")`."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Sequence

from clisup.llm.chat import LanguageModel, checked_model
from clisup.llm.failures import usage_error

Registered = str | LanguageModel | Sequence[str | LanguageModel] | Callable[[], LanguageModel]
"""Meaning of a name: another name, a model, a list of both, or a function that returns a model.

The first model of a list answers, and the others are its fallbacks."""

_lock = threading.Lock()
_names: dict[str, Registered] = {}


def register(name: str, model: Registered) -> None:
    """Give a model a name in this process, or replace the meaning of the name. Safe from any thread.

    The name hides a backend of the same name. Names are looked up when they are resolved, so they may be registered in any order.
    A function is called for each resolution. Raises `UsageError` for an invalid name or model.
    """
    if not isinstance(name, str) or not name or any(char.isspace() for char in name):
        raise usage_error(
            f"{name!r:.100} cannot name a model: it is empty or contains a space",
            'take a word, as in register("fast", "claude/haiku")',
        )
    parts = model if isinstance(model, Sequence) and not isinstance(model, str) else (model,)
    if not parts:
        raise usage_error(f"the list of models of {name!r} is empty", "name at least one model")
    for part in parts:
        if not isinstance(part, str) and not (part is model and callable(part) and not hasattr(part, "chat")):
            checked_model(part)  # type: ignore[arg-type]
    with _lock:
        _names[name] = model if isinstance(model, str) or not isinstance(model, Sequence) else tuple(model)


def unregister(name: str) -> None:
    """Forget a name. Raises `UsageError` for an unknown name."""
    with _lock:
        if _names.pop(name, None) is not None:
            return
    near = near_names(name)
    raise usage_error(
        f"{name!r} is not registered",
        f"did you mean {' or '.join(map(repr, near))}?" if near else "registered() lists all names",
    )


def registered() -> tuple[str, ...]:
    """Return all names, sorted."""
    with _lock:
        return tuple(sorted(_names))


def chain_of(name: str) -> tuple[str | LanguageModel, ...] | None:
    """Return the models behind a name, and names that are not registered. Return None for a name that is not registered.

    Raises `UsageError` for names that lead back to themselves.
    """
    with _lock:
        names = dict(_names)
    return _expanded(name, names, ()) if name in names else None


def near_names(name: str, others: Sequence[str] = ()) -> list[str]:
    """Return registered names and `others` of similar spelling."""
    return difflib.get_close_matches(name, dict.fromkeys([*registered(), *others]), n=3, cutoff=0.6)


def _expanded(name: str, names: dict[str, Registered], path: tuple[str, ...]) -> tuple[str | LanguageModel, ...]:
    if name not in names:
        return (name,)
    if name in path:
        raise usage_error(
            f"the name {path[0]!r} leads back to itself: {' -> '.join((*path, name))}",
            "register one of these names for a model",
        )
    found = names[name]
    if isinstance(found, str):
        return _expanded(found, names, (*path, name))
    if isinstance(found, Sequence):
        parts = (_expanded(part, names, (*path, name)) if isinstance(part, str) else (part,) for part in found)
        return tuple(model for part in parts for model in part)
    if callable(found) and not hasattr(found, "chat"):
        return (checked_model(found()),)
    return (checked_model(found),)  # type: ignore[arg-type]

"""Names of the program's own for models: `register("fast", ["claude/haiku", "groq/llama"])`, then `resolve("fast")`."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Sequence

from clisup.errors import UsageError
from clisup.llm.chat import LanguageModel, checked_model

__all__ = ["Registered", "chain_of", "near_names", "register", "registered", "unregister"]

Registered = str | LanguageModel | Sequence[str | LanguageModel] | Callable[[], LanguageModel]
"""Values that a name may stand for: another name, a model, a list of both, or a function that gives a model.

Of a list the first model answers, and the others are its fallbacks."""

_lock = threading.Lock()
_names: dict[str, Registered] = {}


def register(name: str, model: Registered) -> None:
    """Have a name stand for a model, in all of this process. The same name again replaces it. May be called from any thread.

    It goes before a backend of the same name. A function is called each time the name is resolved. What the name leads to is looked up
    when it is resolved, so names may be registered in any order. Raises `UsageError` for what is no name and no model.
    """
    if not isinstance(name, str) or not name or any(char.isspace() for char in name):
        raise UsageError(
            f"{name!r:.100} cannot name a model, because it is empty or has a space in it",
            kind="usage",
            hint='take a word, as in register("fast", "claude/haiku")',
        )
    parts = model if isinstance(model, Sequence) and not isinstance(model, str) else (model,)
    if not parts:
        raise UsageError(f"{name!r} cannot stand for an empty list", kind="usage", hint="name at least one model")
    for part in parts:
        if not isinstance(part, str) and not (part is model and callable(part) and not hasattr(part, "chat")):
            checked_model(part)  # type: ignore[arg-type]
    with _lock:
        _names[name] = model if isinstance(model, str) or not isinstance(model, Sequence) else tuple(model)


def unregister(name: str) -> None:
    """Forget a name. Raises `UsageError` where it is not registered."""
    with _lock:
        if _names.pop(name, None) is not None:
            return
    near = near_names(name)
    raise UsageError(
        f"{name!r} is not registered",
        kind="usage",
        hint=f"did you mean {' or '.join(map(repr, near))}?" if near else "registered() lists all names",
    )


def registered() -> tuple[str, ...]:
    """Return all names, sorted."""
    with _lock:
        return tuple(sorted(_names))


def chain_of(name: str) -> tuple[str | LanguageModel, ...] | None:
    """Return the models that a name stands for, and names that are not registered. None if the name itself is not.

    Raises `UsageError` where names lead back to themselves.
    """
    with _lock:
        names = dict(_names)
    return _expanded(name, names, ()) if name in names else None


def near_names(name: str, others: Sequence[str] = ()) -> list[str]:
    """Return names that are spelled nearly so: registered ones, and `others`."""
    return difflib.get_close_matches(name, dict.fromkeys([*registered(), *others]), n=3, cutoff=0.6)


def _expanded(name: str, names: dict[str, Registered], path: tuple[str, ...]) -> tuple[str | LanguageModel, ...]:
    if name not in names:
        return (name,)
    if name in path:
        raise UsageError(
            f"the name {path[0]!r} leads back to itself: {' -> '.join((*path, name))}",
            kind="usage",
            hint="register one of these names for a model",
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

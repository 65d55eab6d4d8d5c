"""Registry of backends: built-in ones, and those of other packages by entry point.

An entry point of the group `clisup.backends` names an adapter class. The registry loads the class when a session needs its kind, so
a broken plug-in harms no other backend. Built-in kinds stand in a table here: a checkout without installed metadata works, and no
other package can take their names.
"""

from __future__ import annotations

from importlib import import_module

from clisup.backends.base import Adapter
from clisup.errors import ConfigurationError

__all__ = ["BUILT_IN", "GROUP", "adapter_name", "get_adapter", "is_kind", "kinds"]

GROUP = "clisup.backends"
BUILT_IN: dict[str, str] = {
    "acp": "clisup.backends.acp.adapter:AcpAdapter",
    "anthropic-api": "clisup.backends.api:AnthropicApiAdapter",
    "claude": "clisup.backends.claude.adapter:ClaudeAdapter",
    "codex": "clisup.backends.codex.adapter:CodexAdapter",
    "codex-exec": "clisup.backends.codex.exec:CodexExecAdapter",
    "demo": "clisup.backends.demo:DemoAdapter",
    "gemini": "clisup.backends.gemini.adapter:GeminiAdapter",
    "openai-api": "clisup.backends.api:OpenAiApiAdapter",
    "opencode": "clisup.backends.opencode.adapter:OpencodeAdapter",
    "qwen": "clisup.backends.qwen.adapter:QwenAdapter",
}
ONE_SHOT: dict[str, str] = {"codex": "codex-exec"}
"""Kinds whose `mode = "one-shot"` uses the adapter of another kind."""


def kinds() -> tuple[str, ...]:
    """Return the sorted names for `get_adapter`."""
    return tuple(sorted(_targets()))


def is_kind(name: str) -> bool:
    """Tell whether `get_adapter` knows this kind. Built-in kinds need no scan of the installed packages (10 ms)."""
    return name in BUILT_IN or name in _targets()


def get_adapter(kind: str, mode: str = "auto") -> Adapter:
    """Return a new adapter of this kind, for this `mode` of the configuration.

    Raises `ConfigurationError` for an unknown kind, or a kind whose code does not load.
    """
    targets = BUILT_IN if kind in BUILT_IN else _targets()
    if kind not in targets:
        import difflib  # here and below: most starts need no entry points

        near = difflib.get_close_matches(kind, targets, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(targets))}"
        raise ConfigurationError(f"cannot use the backend kind {kind!r}, because no adapter has that name", hint=hint)
    chosen = adapter_name(kind, mode)
    return _load(chosen, targets[chosen])


def adapter_name(kind: str, mode: str = "auto") -> str:
    """Return the kind whose adapter decodes a recording."""
    return ONE_SHOT.get(kind, kind) if mode == "one-shot" else kind


def _targets() -> dict[str, str]:
    from importlib.metadata import entry_points

    brought = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {**brought, **BUILT_IN}


def _load(kind: str, target: str) -> Adapter:
    module, _, name = target.partition(":")
    try:
        found = getattr(import_module(module), name)
        if not (isinstance(found, type) and issubclass(found, Adapter)):
            why = "it is no subclass of clisup.backends.base.Adapter"
        elif kind in BUILT_IN or not (faults := _faults(found)):
            return found()
        else:
            why = "; ".join(faults)
    except Exception as error:  # a plug-in's code may raise anything while it is imported
        raise ConfigurationError(
            f"cannot load the backend kind {kind!r} from {target}, because {type(error).__name__}: {error}",
            hint="mend or remove the package that brings it",
        ) from error
    raise ConfigurationError(
        f"cannot load the backend kind {kind!r} from {target}, because {why}",
        hint=f"mend {name} by docs/how-to/add-a-backend.md, or remove its package",
    )


def _faults(adapter: type[Adapter]) -> list[str]:
    from clisup.backends.declarations import declaration_faults  # only for packages of others: tests hold our own

    return declaration_faults(adapter)

"""The backends there are: the built-in ones, and those that other packages bring by entry point.

An entry point of the group `clisup.backends` names an adapter class; it is loaded only when its kind is asked for, so
that a broken plug-in harms nobody else. The built-in kinds are in a table here: a checkout without installed metadata
works, and no other package can take their names.
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
    "qwen": "clisup.backends.qwen.adapter:QwenAdapter",
}
ONE_SHOT: dict[str, str] = {"codex": "codex-exec"}
"""Where a kind's `mode = "one-shot"` is another adapter's work: kind to kind."""


def kinds() -> tuple[str, ...]:
    """The names that `get_adapter` takes, sorted."""
    return tuple(sorted(_targets()))


def is_kind(name: str) -> bool:
    """Does `get_adapter` take it? For a built-in one nobody asks what all installed packages bring: that takes 10 ms."""
    return name in BUILT_IN or name in _targets()


def get_adapter(kind: str, mode: str = "auto") -> Adapter:
    """A new adapter of this kind, for this `mode` of the configuration.

    Raises ConfigurationError for an unknown kind, or one whose code cannot be loaded.
    """
    targets = BUILT_IN if kind in BUILT_IN else _targets()
    if kind not in targets:
        import difflib  # here and below: most starts have no use for it

        near = difflib.get_close_matches(kind, targets, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(targets))}"
        raise ConfigurationError(f"cannot use the backend kind {kind!r}, because no adapter has that name", hint=hint)
    chosen = adapter_name(kind, mode)
    return _load(chosen, targets[chosen])


def adapter_name(kind: str, mode: str = "auto") -> str:
    """The kind whose adapter does the work: what a recording is decoded with."""
    return ONE_SHOT.get(kind, kind) if mode == "one-shot" else kind


def _targets() -> dict[str, str]:
    from importlib.metadata import entry_points

    brought = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {**brought, **BUILT_IN}


def _load(kind: str, target: str) -> Adapter:
    module, _, name = target.partition(":")
    try:
        found = getattr(import_module(module), name)
        if isinstance(found, type) and issubclass(found, Adapter):
            return found()
    except Exception as error:  # a plug-in's code may raise anything while it is imported
        raise ConfigurationError(
            f"cannot load the backend kind {kind!r} from {target}, because {type(error).__name__}: {error}",
            hint="mend or remove the package that brings it",
        ) from error
    raise ConfigurationError(
        f"cannot load the backend kind {kind!r} from {target}, because it is no subclass of clisup.backends.base.Adapter",
        hint=f"let {name} inherit from clisup.backends.base.Adapter (docs/adding-a-backend.md), or remove its package",
    )

"""Names of models: "backend/model", as in "claude/opus"; a backend alone is its own default model."""

from __future__ import annotations

from typing import NamedTuple

from clisup.errors import UsageError

__all__ = ["ModelName", "parse_model"]


class ModelName(NamedTuple):
    """A backend of the daemon's configuration and a model of it; None: what the backend takes by itself."""

    backend: str
    model: str | None = None

    def __str__(self) -> str:
        return self.backend if self.model is None else f"{self.backend}/{self.model}"


def parse_model(name: str | ModelName) -> ModelName:
    """`"claude/opus"` gives `ModelName("claude", "opus")`. The model may hold further slashes. Raises `UsageError`."""
    if isinstance(name, ModelName):
        return name
    backend, slash, model = name.strip().partition("/") if isinstance(name, str) else ("", "", "")
    if not backend or (slash and not model.strip()) or any(char.isspace() for char in backend):
        raise UsageError(
            f"cannot take {name!r} for a model, because it is not of the form backend/model",
            hint='write "claude/opus", or "claude" for the model that the backend takes by itself',
        )
    return ModelName(backend, model.strip() or None)

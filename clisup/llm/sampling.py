"""Params by which a model chooses its words: an API has them, a CLI has not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from clisup.errors import UsageError
from clisup.llm.failures import Unsupported
from clisup.llm.names import ModelName

__all__ = ["Sampling"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Params of each answer; None: the backend's own. A backend that lacks one refuses it (`Unsupported`): a CLI has none of them.

    `stop` is a text or several at which the answer ends. Raises `UsageError` for values that no API takes.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | Sequence[str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.stop is not None:
            stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
            object.__setattr__(self, "stop", stop or None)
        problem = ""
        if self.max_tokens is not None and not (_is_whole(self.max_tokens) and self.max_tokens > 0):
            problem = f"max_tokens is {self.max_tokens!r}, and has to be a whole number above 0"
        elif self.temperature is not None and not (_is_number(self.temperature) and self.temperature >= 0):
            problem = f"temperature is {self.temperature!r}, and has to be a number from 0 on"
        elif self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            problem = f"top_p is {self.top_p!r}, and has to be above 0 and at most 1"
        elif self.seed is not None and not _is_whole(self.seed):
            problem = f"seed is {self.seed!r}, and has to be a whole number"
        elif self.stop is not None and not all(isinstance(text, str) and text for text in self.stop):
            problem = "stop has to be texts that are not empty"
        if problem:
            raise UsageError(f"the model cannot be asked with this sampling: {problem}", kind="usage", hint="change it")

    def __bool__(self) -> bool:
        return bool(self.to_wire())

    def to_wire(self) -> dict[str, Any]:
        """The `sampling` of `session/prompt`: only what is set."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: list(value) if name == "stop" else value for name, value in found.items() if value is not None}

    def over(self, defaults: Sampling | None) -> Sampling:
        """These params, and those of `defaults` where this has none."""
        if defaults is None:
            return self
        return replace(defaults, **self.to_wire())

    def check(self, name: ModelName, capabilities: Mapping[str, Any]) -> None:
        """Raise `Unsupported` where the backend lacks one of these params."""
        has = capabilities.get("sampling") or ()
        if lacking := [param for param in self.to_wire() if param not in has]:
            raise Unsupported(
                f"the backend {name.backend} has no {', '.join(lacking)}: "
                + (f"it takes {', '.join(has)} alone" if has else "its CLI chooses how the model answers"),
                kind="unsupported",
                hint="leave it out, or ask a model of an API-key backend",
                param="sampling",
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

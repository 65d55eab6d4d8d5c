"""Every key of the configuration's model, as the table of keys names it, with its default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from clisup.config.model import BackendConfig, Config
from clisup.policy.prices import Price


def model_keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(pattern, default) of every key; `...` where it has none."""
    for name, field in model.model_fields.items():
        key, inner = f"{prefix}{name}", field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from model_keys(inner, f"{key}.")
        elif key == "backends":
            yield from model_keys(BackendConfig, "backends.*.")
        elif key == "prices":
            yield from model_keys(Price, "prices.*.")
        else:
            yield key, ... if field.default is PydanticUndefined else field.default
            for part in get_args(inner):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    yield from model_keys(part, f"{key}[].")

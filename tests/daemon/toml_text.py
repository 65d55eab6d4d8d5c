"""A TOML table from a dict: strings, numbers, lists and inline tables, which is all that the tests configure."""

from __future__ import annotations

import json
from typing import Any


def toml(table: dict[str, Any]) -> str:
    return "\n".join(f"{key} = {_value(value)}" for key, value in table.items()) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)

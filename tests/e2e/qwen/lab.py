"""A daemon in front of the real Qwen Code, which talks to a loopback fake of a Chat Completions API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.e2e.lab import ROOT, Lab
from tests.e2e.qwen.fake_api import FAKE_KEY, FakeChatAPI
from tests.e2e.qwen.scenarios import MODEL
from tests.e2e.scenarios import Scenario

__all__ = ["QwenLab", "environment", "qwen_command"]


def qwen_command() -> Path:
    """The launcher of the pinned CLI that `make e2e-install` fetched, as npm links it."""
    return ROOT / ".e2e" / "qwen" / "node_modules" / ".bin" / "qwen"


def environment(url: str | None, *, key: bool = True) -> dict[str, str]:
    """What a user would set on purpose."""
    login = {"OPENAI_API_KEY": FAKE_KEY, "OPENAI_MODEL": MODEL} if key else {}
    return login if url is None else {**login, "OPENAI_BASE_URL": url}


class QwenLab(Lab):
    """The real qwen in front of a fake API that plays `scenario`."""

    backend = "qwen"

    def __init__(
        self,
        scenario: str | Scenario,
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
        url: bool = True,
        key: bool = True,
    ) -> None:
        super().__init__()
        self.api = FakeChatAPI(scenario).__enter__()
        variables = {**environment(self.api.url if url else None, key=key), **(env or {})}
        self.configure(command=[str(qwen_command())], env=variables, extra='kind = "qwen"\n' + config)

    def close_fakes(self) -> None:
        self.api.close()

"""The pinned codex, and the settings that point it at a fake."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KEY_NAME = "FAKE_API_KEY"


def codex_launcher() -> Path:
    """npm's launcher, as `codex` on PATH is."""
    return ROOT / ".e2e" / "codex" / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"


def codex_binary() -> Path:
    """The native binary that the launcher starts."""
    vendor = ROOT / ".e2e" / "codex" / "node_modules" / "@openai" / "codex-linux-x64" / "vendor"
    return vendor / "x86_64-unknown-linux-musl" / "bin" / "codex"


def provider(url: str, *, retries: int = 1) -> list[str]:
    """Arguments that make the fake at `url` the provider, and retries few. The bundled skills would only make frames long."""
    table = f'name="fake",base_url="{url}/v1",wire_api="responses",env_key="{KEY_NAME}"'
    table += f",request_max_retries={retries},stream_max_retries={retries}"
    settings = ['model_provider="fake"', f"model_providers.fake={{{table}}}", "skills.include_instructions=false"]
    return [word for setting in settings for word in ("-c", setting)]

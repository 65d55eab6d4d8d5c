"""What a message about an exit quotes of stderr, for every CLI."""

from __future__ import annotations

import pytest

from clisup.backends.registry import get_adapter
from tests.backends.recorded import Recording

CAUSE = "the disk is on fire"
BUBBLEWRAP = "2026-11-28T12:00:00.000000Z ERROR codex_app_server: Codex could not find bubblewrap on PATH. Install it."
COLORS = "Warning: 256-color support not detected. Using a terminal with at least 256-color support is recommended."
NOISE = {
    "codex": ["Reading prompt from stdin...", BUBBLEWRAP],
    "codex-exec": ["Reading additional input from stdin...", BUBBLEWRAP.replace("app_server", "exec")],
    "gemini": [
        "Ripgrep is not available. Falling back to GrepTool.",
        COLORS,
        "YOLO mode is enabled. All tool calls will be approved.",
    ],
    "qwen": ["Ripgrep not available: no such file", COLORS],
    "acp": ["[acp] began", "DeprecationWarning: old", "Ripgrep is not available. Slow.", COLORS],
}


@pytest.mark.parametrize("kind", NOISE)
def test_lines_that_a_cli_always_prints_are_no_cause_of_its_end(kind: str) -> None:
    adapter = get_adapter(kind)
    for stderr in ("\n".join([*NOISE[kind], CAUSE]), "\n".join([CAUSE, *NOISE[kind]])):
        message = adapter.explain_exit(adapter.run_end(7, None, stderr)).message
        assert message.endswith(CAUSE) and not any(line in message for line in NOISE[kind])
    end = adapter.run_end(7, None, "\n".join(NOISE[kind]) + "\n")
    assert end.stderr == "" and "exited with code 7" in adapter.explain_exit(end).message


@pytest.mark.parametrize("kind", NOISE)
def test_a_line_that_only_quotes_such_a_line_stays(kind: str) -> None:
    quoted = "\n".join(f"failed: '{line}'" for line in NOISE[kind] if not line.startswith("20"))
    assert get_adapter(kind).run_end(7, None, quoted).stderr == quoted


def test_an_answer_of_opencode_without_a_word_is_no_success() -> None:
    error = Recording.of("opencode/empty").terminal().error
    assert error is not None and (error.kind, error.retryable) == ("server", True)


def test_a_page_of_help_is_not_told_as_the_cause() -> None:
    """opencode prints only its help about a flag that it does not know."""
    recording = Recording.of("opencode/bad_flag")
    error = recording.adapter.explain_exit(recording.run_end)
    assert error.kind == "invalid_request" and "--" not in error.message and "the backend's args" in error.message

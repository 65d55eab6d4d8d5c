"""What a message about an exit quotes of stderr, for every CLI."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

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


@pytest.mark.parametrize("kind", ["acp", "claude", "codex", "gemini", "opencode", "qwen"])
def test_a_message_holds_no_colours_of_stderr(kind: str) -> None:
    end = get_adapter(kind).run_end(7, None, f"\x1b]0;title\x07\x1b[31m\x1b[1mError: {CAUSE}\x1b[0m")
    assert get_adapter(kind).explain_exit(end).message.endswith(f"Error: {CAUSE}")


SPOILED = {
    "opencode": "\x1b[91m\x1b[1mError: \x1b[0mConfig file at /home/u/.config/opencode/opencode.json is not valid JSON(C): ",
    "qwen": "Error: Cannot read operator sandbox policy from /home/u/.qwen/settings.json: SyntaxError: Unexpected end of JSON input",
}


@pytest.mark.fault(104)
@pytest.mark.parametrize("kind", SPOILED)
def test_spoiled_settings_are_the_users_to_mend(kind: str) -> None:
    """opencode 1.18.34 and qwen 0.24.4 say so; the words are theirs, without what follows."""
    error = get_adapter(kind).explain_exit(get_adapter(kind).run_end(1, None, SPOILED[kind]))
    assert (error.kind, error.retryable) == ("invalid_request", False) and "mend" in error.message


def test_a_step_of_opencode_tells_its_usage_and_its_reason() -> None:
    """Without it, a turn that is ended would count nothing."""
    stops = Recording.of("opencode/tool_ok").events("message_stop")
    assert [stop.stop_reason for stop in stops] == ["tool-calls", "stop"]
    assert [(stop.usage.input_tokens, stop.usage.output_tokens) for stop in stops] == [(700, 40), (700, 41)]


def test_a_step_of_opencode_without_an_answer_that_used_up_its_tokens_is_an_output_limit() -> None:
    recording = Recording.of("opencode/tool_ok")
    decoder = recording.adapter.decoder(recording.carried, recording.request)
    lines = [replace(line, data=line.data.replace(b'"stop"', b'"length"')) for line in recording.lines()]
    ends = [decoder.decode(line).terminal for line in lines if b'"type":"text"' not in line.data]
    assert ends[-1] is not None and ends[-1].error is not None and ends[-1].error.kind == "output_limit"


def test_an_answer_of_opencode_without_a_word_is_no_success() -> None:
    error = Recording.of("opencode/empty").terminal().error
    assert error is not None and (error.kind, error.retryable) == ("server", True)


def test_a_page_of_help_is_not_told_as_the_cause() -> None:
    """opencode prints only its help about a flag that it does not know."""
    recording = Recording.of("opencode/bad_flag")
    error = recording.adapter.explain_exit(recording.run_end)
    assert error.kind == "invalid_request" and "--" not in error.message and "the backend's args" in error.message

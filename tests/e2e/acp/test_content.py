"""Images and hygiene with real ACP agents: `qwen --acp` (0.24.4) and `gemini --acp` (0.61.0)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.acp.qwen import QwenAcpLab
from tests.e2e.gemini.fake_api import FAKE_KEY, FakeGeminiAPI
from tests.e2e.gemini.lab import COMMAND, write_settings
from tests.e2e.lab import Lab, running
from tests.e2e.pictures import PNG_BASE64, image, text

pytestmark = pytest.mark.e2e
CANARY = "the file's own words"


class GeminiAcpLab(Lab):
    """`[backends.agent]`: kind acp, the command `gemini --acp`."""

    backend = "agent"
    asked_by_others = True  # gemini 0.61.0 leaves its thoughts out of its report

    def __init__(self, scenario: str) -> None:
        super().__init__()
        write_settings(self.home)
        self.api = FakeGeminiAPI(scenario).__enter__()
        trusted = {"GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        env = {"GOOGLE_GEMINI_BASE_URL": self.api.url, "GEMINI_API_KEY": FAKE_KEY, **trusted}
        self.configure(command=[*COMMAND, "--acp", "-m", "fake-model"], env=env, extra='kind = "acp"\n')

    def close_fakes(self) -> None:
        self.api.close()


@pytest.fixture(params=[QwenAcpLab, GeminiAcpLab], ids=["qwen", "gemini"])
def here(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        yield stack.enter_context(running(request.param("text")))


def asked(here: Any) -> str:
    return json.dumps([request.body for request in here.api.requests], ensure_ascii=False)


def sent(here: Any) -> list[dict[str, Any]]:
    """The parts of the last message in the user's name, but for the agent's own context."""
    body = here.api.main_requests[0].body
    messages = [entry for entry in body.get("messages") or body["contents"] if entry["role"] == "user"]
    parts = messages[-1].get("content") or messages[-1]["parts"]
    own = ("<system-reminder>", "<session_context>")
    return [part for part in parts if not str(part.get("text")).startswith(own)]


def test_images_reach_the_model_in_their_places() -> None:
    """qwen sends them as they are where it knows that the model sees; of `fake-coder` it thinks that it does not."""
    with running(QwenAcpLab("text", env={"OPENAI_MODEL": "qwen3-vl-plus"})) as here:
        turn = here.turn([text("What is"), image(), text("this?")])
        url = {"url": f"data:image/png;base64,{PNG_BASE64}"}
        assert sent(here) == [text("What is"), {"type": "image_url", "image_url": url}, text("this?")]
        assert here.events(turn["session_id"], "turn_started")[0]["prompt_images"] == 1


def test_images_reach_geminis_model_in_their_places() -> None:
    with running(GeminiAcpLab("text")) as here:
        here.turn([text("What is"), image(), text("this?")])
        shown = {"inlineData": {"data": PNG_BASE64, "mimeType": "image/png"}}
        assert sent(here) == [{"text": "What is"}, shown, {"text": "this?"}]


@pytest.mark.fault(69)
@pytest.mark.parametrize("places", [(0, 1), (1, 0)])
def test_no_text_before_or_behind_an_image_is_a_command_or_names_a_file(here: Any, places: tuple[int, int]) -> None:
    (here.cwd / "canary.txt").write_text(CANARY)
    blocks = [image(), text("/about @canary.txt !touch made.txt {{args}} $HOME")]
    turn = here.turn([blocks[place] for place in places])
    assert "\u200b/about @canary.txt !touch made.txt {{args}} $HOME" in asked(here) and CANARY not in asked(here)
    assert here.altered(turn) == "zero-width space before a leading command character"
    assert not (here.cwd / "made.txt").exists()


def test_with_expand_qwen_runs_the_command_behind_an_image() -> None:
    with running(QwenAcpLab("text")) as here:
        turn = here.turn([image(), text("/about")], expand=True)
        assert here.api.main_requests == [] and here.altered(turn) is None

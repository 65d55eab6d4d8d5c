"""The params of `session/prompt`: blocks of text and images, checked before anything else looks at them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from clisup.model.prompts.content import Image
from clisup.wire.params import PromptParams

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
GIF = base64.b64encode(b"GIF89a" + b"\0" * 9).decode()
IMAGE = {"type": "image", "media_type": "image/gif", "data": GIF}
TEXT = {"type": "text", "text": "What is"}


def params(prompt: Any) -> PromptParams:
    return PromptParams.model_validate({"session_id": SESSION, "prompt": prompt})


def test_a_string_is_one_text() -> None:
    said = params("hello")
    assert (said.text, said.content, said.images) == ("hello", ("hello",), [])


def test_blocks_keep_their_order_and_tell_the_size_of_each_file() -> None:
    said = params([TEXT, IMAGE, {"type": "text", "text": "this?"}])
    assert said.content == ("What is", Image("image/gif", GIF), "this?")
    assert said.text == "What is\nthis?"
    assert [image.size for image in said.images] == [15]
    assert GIF not in repr(said)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (IMAGE | {"data": "***"}, "data is no base64"),
        (IMAGE | {"data": ""}, "data is empty"),
        (IMAGE | {"media_type": "image/png"}, "media_type is image/png, but data is image/gif"),
        (IMAGE | {"media_type": "image/svg+xml"}, "Input should be 'image/png', 'image/jpeg', 'image/gif' or 'image/webp'"),
        (IMAGE | {"data": 1}, "valid string"),
        (IMAGE | {"detail": "high"}, "Extra inputs"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": GIF}}, "Field required"),
        ({"type": "audio"}, "does not match any of the expected tags"),
        ({"text": "no type"}, "Unable to extract tag"),
    ],
)  # fmt: skip
def test_what_is_no_block_is_refused_with_the_reason(block: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        params([TEXT, block])
    told = [problem["msg"] for problem in refused.value.errors(include_input=False)]
    assert any(why in message for message in told), told

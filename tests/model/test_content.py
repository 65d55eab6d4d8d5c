"""Images in prompts: what one is by its first bytes, and how a prompt of blocks is kept."""

from __future__ import annotations

import base64
import json

import pytest

from clisup.model.prompts.content import Image, content_of, image_of, media_type_of, stored, text_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0JFIF", "image/jpeg"),
        (b"GIF87a..", "image/gif"),
        (b"GIF89a..", "image/gif"),
        (WEBP, "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"%PDF-1.7", None),
        (b"<svg/>", None),
        (b"\x89PNG", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_what_an_image_is(data: bytes, media_type: str | None) -> None:
    assert media_type_of(data) == media_type


def test_a_good_image_is_kept_as_it_came_with_the_size_of_its_file() -> None:
    image, size = image_of("image/png", encoded(PNG))
    assert (image.raw, size, image.data) == (PNG, len(PNG), encoded(PNG))
    assert image.url == f"data:image/png;base64,{encoded(PNG)}"
    assert [image.file_name(1), Image("image/jpeg", "").file_name(12)] == ["image-1.png", "image-12.jpg"]


@pytest.mark.parametrize(
    ("media_type", "data", "why"),
    [
        ("image/png", "", "data is empty"),
        ("image/png", "not base64!", "no base64"),
        ("image/png", encoded(PNG)[:-1], "no base64"),
        ("image/png", encoded(PNG) + "\n", "no base64"),
        ("image/png", "\u00e9" + encoded(PNG), "no base64"),
        ("image/jpeg", encoded(PNG), "media_type is image/jpeg, but data is image/png"),
        ("image/png", encoded(b"%PDF-1.7 secret words"), "data is no image"),
    ],
)
def test_what_is_wrong_with_an_image_is_said_without_its_data(media_type: str, data: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        image_of(media_type, data)
    assert "secret" not in str(refused.value) and not (data and data in str(refused.value))


def test_a_stored_prompt_comes_back_in_its_order_and_without_blocks_that_say_nothing() -> None:
    image = Image("image/png", encoded(PNG))
    content = ("What is", " \n", image, "this?")
    assert content_of(json.loads(json.dumps(stored(content)))) == ("What is", image, "this?")
    assert text_of(content) == "What is\n \n\nthis?"
    assert content_of(None) == ()

"""A file's bytes as a block of a prompt."""

from __future__ import annotations

import base64

import pytest

from clisup.client.images import image_block
from clisup.errors import UsageError
from clisup.wire.params import ImageBlock


def test_a_file_becomes_the_block_that_the_daemon_takes() -> None:
    data = b"\xff\xd8\xff\xe0 picture"
    block = image_block(data)
    assert block == {"type": "image", "media_type": "image/jpeg", "data": base64.b64encode(data).decode()}
    assert ImageBlock.model_validate(block).size == len(data)


def test_what_is_no_image_is_refused_here() -> None:
    with pytest.raises(UsageError, match="no kind that models see") as refused:
        image_block(b"%PDF-1.7")
    assert "image/webp" in (refused.value.hint or "")

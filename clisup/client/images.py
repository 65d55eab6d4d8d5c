"""Images in prompts: the bytes of a file as a block of `session/prompt`."""

from __future__ import annotations

import base64

from clisup.errors import UsageError
from clisup.model.prompts.content import MEDIA_TYPES, media_type_of

__all__ = ["image_block"]


def image_block(data: bytes) -> dict[str, str]:
    """Return the block of an image. The first bytes decide the media type.

    The daemon checks its own limits (`max_image_bytes`, `max_images`). Raise `UsageError` unless the image is PNG, JPEG, GIF or
    WebP.
    """
    media_type = media_type_of(data)
    if media_type is None:
        raise UsageError(
            "cannot send this as an image, because its first bytes are of no kind that models see",
            hint=f"take one of {', '.join(MEDIA_TYPES)}",
        )
    return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}
